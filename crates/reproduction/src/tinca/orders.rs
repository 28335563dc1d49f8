//! TPC-C's transactions as sets of pages: the pages that each of its five kinds reads and writes of
//! a store of 4 KiB pages, by the rules of the benchmark's specification (revision 5.11): its mix,
//! its sizes of rows, its skew (`NURand`), its parts of remote warehouses, and that a terminal's
//! home warehouse stays the same (clause 2.4.1.1), as in the paper's HammerDB. So the more users
//! there are, the more warehouses are at work.
//!
//! There are as many warehouses as in the paper, each with 16 times fewer rows than specified. With
//! 16 times fewer warehouses, 60 users would be at work in all of them, and not in a sixth.
//!
//! Pages of index trees above the leaves are taken to be in DRAM and are left out. Rows are not
//! locked: users wait for each other at the store alone. What a transaction changed is committed
//! with its pages, all together.

use tidegate_sim::Rng;

/// How many times fewer rows tables have than by the specification.
const FEWER: u64 = 16;

/// Rows of a warehouse's tables, by clause 1.2: customers of a district, of which there are fewer,
/// and items.
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 3000_u64.div_ceil(FEWER);
const STOCK: u64 = 100_000 / FEWER;

/// How far the skew of customers and of items reaches (clause 2.1.6), of fewer rows.
const CUSTOMERS_SKEW: u64 = 1024 / FEWER - 1;
const ITEMS_SKEW: u64 = 8192 / FEWER - 1;

/// Orders of a warehouse that are not delivered yet (clause 4.3.3.1), of fewer.
const UNDELIVERED: u64 = 900 / FEWER;

/// Rows on a page: 4,000 bytes of it over the sizes of rows (clause 1.2.1).
const CUSTOMERS_A_PAGE: u64 = 6;
const STOCK_A_PAGE: u64 = 13;
const ITEMS_A_PAGE: u64 = 48;
const LINES_A_PAGE: u64 = 74;
const ORDERS_A_PAGE: u64 = 166;
const HISTORY_A_PAGE: u64 = 86;

/// Pages of the tables of a warehouse, in this order.
const CUSTOMER_PAGES: u64 = DISTRICTS * CUSTOMERS / CUSTOMERS_A_PAGE;
const STOCK_PAGES: u64 = STOCK.div_ceil(STOCK_A_PAGE);
const LINE_PAGES: u64 = (DISTRICTS * CUSTOMERS * 10).div_ceil(LINES_A_PAGE) * 5 / 4;
const ORDER_PAGES: u64 = (DISTRICTS * CUSTOMERS).div_ceil(ORDERS_A_PAGE) * 5 / 4;
const HISTORY_PAGES: u64 = (DISTRICTS * CUSTOMERS).div_ceil(HISTORY_A_PAGE) * 5 / 4;

/// The pages of a warehouse: its own row, its districts', and its tables.
const WAREHOUSE_PAGES: u64 = 2 + CUSTOMER_PAGES + STOCK_PAGES + LINE_PAGES + ORDER_PAGES + HISTORY_PAGES;

/// Pages of the items, which all warehouses share.
const ITEM_PAGES: u64 = STOCK.div_ceil(ITEMS_A_PAGE);

/// The paper's warehouses.
pub const WAREHOUSES: u64 = 350;

/// Pages of everything.
pub const PAGES: u64 = ITEM_PAGES + WAREHOUSES * WAREHOUSE_PAGES;

/// The pages that a transaction reads, and those of them that it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// In the order in which it reads them; without repetitions.
    pub read: Vec<u64>,
    /// Without repetitions.
    pub written: Vec<u64>,
}

/// Where orders, their lines and the history are appended, warehouse by warehouse.
#[derive(Clone, Debug)]
pub struct Ends(Vec<End>);

#[derive(Clone, Copy, Debug, Default)]
struct End {
    lines: u64,
    orders: u64,
    history: u64,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends(vec![End::default(); index(WAREHOUSES)])
    }
}

impl Ends {
    fn of(&mut self, warehouse: u64) -> &mut End {
        &mut self.0[index(warehouse)]
    }
}

impl Pages {
    /// The next transaction at the warehouse `home`, of the specification's mix (clause 5.2.3).
    pub fn next(home: u64, random: &mut Rng, ends: &mut Ends) -> Pages {
        let (mut pages, end) = (Pages::default(), ends.of(home));
        match random.below(100) {
            0..45 => pages.new_order(home, random, end),
            45..88 => pages.payment(home, random, end),
            88..92 => pages.order_status(home, random, *end),
            92..96 => pages.delivery(home, random, *end),
            _ => pages.stock_level(home, random, *end),
        }
        pages
    }

    fn read(&mut self, page: u64) {
        if !self.read.contains(&page) {
            self.read.push(page);
        }
    }

    fn change(&mut self, page: u64) {
        self.read(page);
        if !self.written.contains(&page) {
            self.written.push(page);
        }
    }

    /// Clause 2.4.
    fn new_order(&mut self, home: u64, random: &mut Rng, end: &mut End) {
        self.read(warehouse(home));
        self.change(districts(home));
        self.read(customer(home, random));
        let lines = 5 + random.below(11);
        for _ in 0..lines {
            let item = skewed(random, ITEMS_SKEW, STOCK);
            let supplier = if random.one_in(100) { random.below(WAREHOUSES) } else { home };
            self.read(item / ITEMS_A_PAGE);
            self.change(stock(supplier, item));
        }
        self.change(order_page(home, end.orders));
        (end.lines..end.lines + lines).for_each(|line| self.change(line_page(home, line)));
        end.orders += 1;
        end.lines += lines;
    }

    /// Clause 2.5: 15 of 100 customers are another warehouse's; 60 of 100 are found by name, of
    /// whom there are three.
    fn payment(&mut self, home: u64, random: &mut Rng, end: &mut End) {
        self.change(warehouse(home));
        self.change(districts(home));
        let of = if random.below(100) < 15 { random.below(WAREHOUSES) } else { home };
        if random.below(100) < 60 {
            (0..2).for_each(|_| self.read(customer(of, random)));
        }
        self.change(customer(of, random));
        self.change(history_page(home, end.history));
        end.history += 1;
    }

    /// Clause 2.6.
    fn order_status(&mut self, home: u64, random: &mut Rng, end: End) {
        self.read(customer(home, random));
        self.some_order(home, random, end, false);
    }

    /// Clause 2.7: the oldest order of each district.
    fn delivery(&mut self, home: u64, random: &mut Rng, end: End) {
        for _ in 0..DISTRICTS {
            self.some_order(home, random, end, true);
            self.change(customer(home, random));
        }
    }

    /// Clause 2.8: the lines of twenty orders, and the stock of their items.
    fn stock_level(&mut self, home: u64, random: &mut Rng, end: End) {
        self.read(districts(home));
        (end.lines.saturating_sub(200)..=end.lines).for_each(|line| self.read(line_page(home, line)));
        for _ in 0..200 {
            self.read(stock(home, skewed(random, ITEMS_SKEW, STOCK)));
        }
    }

    /// One of the last orders of `home`, with its ten lines.
    fn some_order(&mut self, home: u64, random: &mut Rng, end: End, changed: bool) {
        let back = random.below(UNDELIVERED);
        let order = order_page(home, end.orders.saturating_sub(back));
        let line = end.lines.saturating_sub(10 * back);
        let lines = (line..line + 10).map(|line| line_page(home, line));
        for page in std::iter::once(order).chain(lines) {
            if changed { self.change(page) } else { self.read(page) }
        }
    }
}

fn index(warehouse: u64) -> usize {
    usize::try_from(warehouse).expect("a few thousand")
}

/// Clause 2.1.6: `NURand(a, 0, below - 1)`.
fn skewed(random: &mut Rng, a: u64, below: u64) -> u64 {
    const C: u64 = 123;
    ((random.below(a + 1) | random.below(below)) + C) % below
}

fn warehouse(of: u64) -> u64 {
    ITEM_PAGES + of * WAREHOUSE_PAGES
}

/// Ten rows, on one page.
fn districts(of: u64) -> u64 {
    warehouse(of) + 1
}

fn customer(of: u64, random: &mut Rng) -> u64 {
    let row = random.below(DISTRICTS) * CUSTOMERS + skewed(random, CUSTOMERS_SKEW, CUSTOMERS);
    warehouse(of) + 2 + row / CUSTOMERS_A_PAGE
}

fn stock(of: u64, item: u64) -> u64 {
    warehouse(of) + 2 + CUSTOMER_PAGES + item / STOCK_A_PAGE
}

fn line_page(of: u64, line: u64) -> u64 {
    warehouse(of) + 2 + CUSTOMER_PAGES + STOCK_PAGES + line / LINES_A_PAGE % LINE_PAGES
}

fn order_page(of: u64, order: u64) -> u64 {
    warehouse(of) + 2 + CUSTOMER_PAGES + STOCK_PAGES + LINE_PAGES + order / ORDERS_A_PAGE % ORDER_PAGES
}

fn history_page(of: u64, row: u64) -> u64 {
    warehouse(of) + WAREHOUSE_PAGES - HISTORY_PAGES + row / HISTORY_A_PAGE % HISTORY_PAGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_change_what_the_specification_says() {
        let (mut random, mut ends) = (Rng::new(1), Ends::default());
        let mut next = || Pages::next(random.below(WAREHOUSES), &mut random, &mut ends);
        let all: Vec<Pages> = (0..20_000).map(|_| next()).collect();
        assert!(all.iter().flat_map(|pages| &pages.read).all(|page| *page < PAGES));
        assert!(all.iter().all(|pages| pages.written.iter().all(|page| pages.read.contains(page))));
        let silent = all.iter().filter(|pages| pages.written.is_empty()).count();
        assert!((1_400..1_800).contains(&silent), "8 of 100 only read: {silent}");
        let payments = all.iter().filter(|pages| pages.written.len() == 4).count();
        assert!(payments > 8_000, "43 of 100 change four rows: {payments}");
        let changed: usize = all.iter().map(|pages| pages.written.len()).sum();
        assert!((120_000..220_000).contains(&changed), "{changed}");
    }

    #[test]
    fn low_and_high_rows_are_as_likely_but_some_are_hot() {
        let mut random = Rng::new(2);
        let mut rows = vec![0_u32; 3000];
        (0..300_000).for_each(|_| rows[index(skewed(&mut random, 1023, 3000))] += 1);
        let greatest = rows.iter().max().copied().unwrap_or(0);
        assert!(greatest > 500, "the mean is 100: {greatest}");
    }
}
