//! TPC-C as text for SQL shells: tables, their rows, and the five transactions in the mix of the
//! specification.
//!
//! A transaction needs no answer before its next statement, so that a shell carries it out by
//! itself: numbers that the specification has read first are sub-queries here. Tables are smaller
//! than the specification's for as many warehouses, and there is no time to think.

use std::fmt::Write;
use tidegate_sim::Rng;

/// Districts of a warehouse.
const DISTRICTS: u64 = 10;

/// Last names, of which each district has customers: the specification has 1,000.
const NAMES: u64 = 50;

/// Rows that one statement inserts.
const ROWS_OF_A_STATEMENT: usize = 200;

/// What new tables are to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) warehouses: u64,
    /// Kinds of things that a warehouse has.
    pub(super) items: u64,
    /// Customers of a district. Each has one order.
    pub(super) customers: u64,
}

impl Size {
    /// The one for so many transactions in a sample.
    pub(super) fn for_transactions(transactions: u32) -> Size {
        match transactions {
            0..1000 => Size { warehouses: 1, items: 100, customers: 10 },
            _ => Size { warehouses: 3, items: 2000, customers: 300 },
        }
    }
}

/// The tables. Money is in hundredths.
pub(super) const TABLES: &str = "
create table warehouse(w_id int primary key, w_name varchar(10), w_tax int, w_ytd bigint);
create table district(d_w_id int, d_id int, d_name varchar(10), d_tax int, d_ytd bigint, d_next_o_id int, primary key(d_w_id, d_id));
create table customer(c_w_id int, c_d_id int, c_id int, c_last varchar(16), c_first varchar(16), c_balance bigint, c_ytd bigint, c_payments int, c_deliveries int, c_data varchar(250), primary key(c_w_id, c_d_id, c_id));
create index customers_by_name on customer(c_w_id, c_d_id, c_last);
create table history(h_w_id int, h_d_id int, h_c_w_id int, h_c_d_id int, h_c_id int, h_amount bigint, h_data varchar(24));
create table orders(o_w_id int, o_d_id int, o_id int, o_c_id int, o_carrier int, o_lines int, primary key(o_w_id, o_d_id, o_id));
create index orders_by_customer on orders(o_w_id, o_d_id, o_c_id, o_id);
create table new_order(n_w_id int, n_d_id int, n_o_id int, primary key(n_w_id, n_d_id, n_o_id));
create table order_line(l_w_id int, l_d_id int, l_o_id int, l_number int, l_i_id int, l_supply_w_id int, l_quantity int, l_amount bigint, l_delivered int, l_info varchar(24), primary key(l_w_id, l_d_id, l_o_id, l_number));
create table item(i_id int primary key, i_name varchar(24), i_price int, i_data varchar(50));
create table stock(s_w_id int, s_i_id int, s_quantity int, s_ytd int, s_orders int, s_remote int, s_districts varchar(240), s_data varchar(50), primary key(s_w_id, s_i_id));
";

/// A sum that is 0 as long as no transaction was done in part: the specification's conditions 1 to
/// 4 of consistency.
pub(super) const INCONSISTENCIES: &str = "select
    (select count(*) from warehouse where w_ytd <> (select sum(d_ytd) from district where d_w_id = w_id))
    + (select count(*) from district where d_next_o_id - 1 <> (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d_id))
    + (select count(*) from district where (select max(n_o_id) - min(n_o_id) + 1 - count(*) from new_order where n_w_id = d_w_id and n_d_id = d_id) <> 0)
    + abs((select sum(o_lines) from orders) - (select count(*) from order_line));";

/// Orders that there are in all.
pub(super) const ORDERS: &str = "select sum(d_next_o_id - 1) from district;";

/// The statements that fill the tables.
pub(super) fn rows(size: Size) -> String {
    let (mut text, mut random) = (Rows::default(), Rng::new(1));
    for item in 1..=size.items {
        text.add("item", format!("{item}, 'item {item}', {}, '{}'", 100 + random.below(9900), filler(26)));
    }
    for w in 1..=size.warehouses {
        let ytd = DISTRICTS * 3_000_000;
        text.add("warehouse", format!("{w}, 'w{w}', {}, {ytd}", random.below(2000)));
        for item in 1..=size.items {
            let (quantity, districts) = (10 + random.below(91), filler(240));
            text.add("stock", format!("{w}, {item}, {quantity}, 0, 0, 0, '{districts}', '{}'", filler(26)));
        }
        for d in 1..=DISTRICTS {
            let next = size.customers + 1;
            text.add("district", format!("{w}, {d}, 'd{d}', {}, 3000000, {next}", random.below(2000)));
            for c in 1..=size.customers {
                let (name, data) = (name(c % NAMES), filler(250));
                text.add("customer", format!("{w}, {d}, {c}, '{name}', 'first {c}', -1000, 1000, 1, 0, '{data}'"));
                add_order(&mut text, &mut random, size, [w, d, c]);
            }
        }
    }
    text.all()
}

/// An order of the customer of the same number. Of ten, three are not delivered.
fn add_order(text: &mut Rows, random: &mut Rng, size: Size, [w, d, number]: [u64; 3]) {
    let (lines, is_new) = (5 + random.below(11), number * 10 > size.customers * 7);
    let carrier = if is_new { "null".to_owned() } else { (1 + random.below(10)).to_string() };
    text.add("orders", format!("{w}, {d}, {number}, {number}, {carrier}, {lines}"));
    if is_new {
        text.add("new_order", format!("{w}, {d}, {number}"));
    }
    for line in 1..=lines {
        let (item, delivered) = (1 + random.below(size.items), if is_new { "null" } else { "1" });
        text.add("order_line", format!("{w}, {d}, {number}, {line}, {item}, {w}, 5, 0, {delivered}, '{}'", filler(24)));
    }
}

/// Statements that insert many rows each.
#[derive(Default)]
struct Rows {
    text: String,
    table: &'static str,
    rows: usize,
}

impl Rows {
    fn add(&mut self, table: &'static str, row: String) {
        if self.table != table || self.rows == ROWS_OF_A_STATEMENT {
            self.end();
            self.text += &format!("insert into {table} values");
            self.table = table;
        }
        let comma = if self.rows == 0 { "" } else { "," };
        self.text += &format!("{comma}({row})");
        self.rows += 1;
    }

    fn end(&mut self) {
        if self.rows > 0 {
            self.text += ";\n";
        }
        self.rows = 0;
    }

    fn all(mut self) -> String {
        self.end();
        self.text
    }
}

fn filler(len: usize) -> String {
    "abcdefghijklmnopqrstuvwxyz".chars().cycle().take(len).collect()
}

fn name(number: u64) -> String {
    const PARTS: [&str; 10] = ["bar", "ought", "able", "pri", "pres", "ese", "anti", "cally", "ation", "eing"];
    let part = |digit: u64| PARTS[(digit % 10) as usize];
    [part(number / 10), part(number)].concat()
}

/// A user at a terminal of one warehouse.
pub(super) struct User {
    size: Size,
    warehouse: u64,
    random: Rng,
}

impl User {
    /// The user of this number.
    pub(super) fn new(size: Size, number: u64) -> User {
        User { size, warehouse: 1 + number % size.warehouses, random: Rng::new(1000 + number) }
    }

    /// The statements of the next transaction: of a hundred, 45 are new orders and 43 payments.
    pub(super) fn transaction(&mut self) -> String {
        let mut text = String::new();
        let written = match self.random.below(100) {
            0..45 => self.new_order(&mut text),
            45..88 => self.payment(&mut text),
            88..92 => self.order_status(&mut text),
            92..96 => self.delivery(&mut text),
            _ => self.stock_level(&mut text),
        };
        written.expect("a string takes all");
        text
    }

    fn district(&mut self) -> u64 {
        1 + self.random.below(DISTRICTS)
    }

    /// Some numbers are drawn more often, as the specification has it.
    fn uneven(&mut self, spread: u64, among: u64) -> u64 {
        let both = self.random.below(spread + 1) | self.random.below(among);
        1 + (both + spread / 3) % among
    }

    fn customer(&mut self) -> u64 {
        self.uneven(1023, self.size.customers)
    }

    /// This warehouse, or once in `n` times another one.
    fn warehouse_but_once_in(&mut self, n: u64) -> u64 {
        match self.random.one_in(n) {
            true => 1 + self.random.below(self.size.warehouses),
            false => self.warehouse,
        }
    }

    fn new_order(&mut self, text: &mut String) -> std::fmt::Result {
        let (w, d, c) = (self.warehouse, self.district(), self.customer());
        let lines = 5 + self.random.below(11);
        // In the order of their numbers: two orders at a time never wait for each other's items.
        let mut items: Vec<_> =
            (0..lines).map(|_| (self.warehouse_but_once_in(100), self.uneven(8191, self.size.items))).collect();
        items.sort_unstable();
        let here = format!("d_w_id = {w} and d_id = {d}");
        writeln!(text, "update district set d_next_o_id = d_next_o_id + 1 where {here};")?;
        writeln!(
            text,
            "insert into orders select {w}, {d}, d_next_o_id - 1, {c}, null, {lines} from district where {here};"
        )?;
        writeln!(text, "insert into new_order select {w}, {d}, d_next_o_id - 1 from district where {here};")?;
        for (number, (supply, item)) in items.into_iter().enumerate() {
            let (quantity, remote) = (1 + self.random.below(10), u8::from(supply != w));
            writeln!(
                text,
                "update stock set s_quantity = case when s_quantity >= {quantity} + 10 then s_quantity - {quantity} \
                 else s_quantity - {quantity} + 91 end, s_ytd = s_ytd + {quantity}, s_orders = s_orders + 1, \
                 s_remote = s_remote + {remote} where s_w_id = {supply} and s_i_id = {item};"
            )?;
            writeln!(
                text,
                "insert into order_line select {w}, {d}, d_next_o_id - 1, {number}, {item}, {supply}, {quantity}, \
                 {quantity} * i_price, null, substr(s_districts, {d} * 24 - 23, 24) from district, item, stock \
                 where {here} and i_id = {item} and s_w_id = {supply} and s_i_id = {item};"
            )?;
        }
        Ok(())
    }

    fn payment(&mut self, text: &mut String) -> std::fmt::Result {
        let (w, d, c, amount) = (self.warehouse, self.district(), self.customer(), 100 + self.random.below(499_901));
        let (of, in_district) = (self.warehouse_but_once_in(7), self.district());
        writeln!(text, "update warehouse set w_ytd = w_ytd + {amount} where w_id = {w};")?;
        writeln!(text, "update district set d_ytd = d_ytd + {amount} where d_w_id = {w} and d_id = {d};")?;
        if self.random.below(100) < 60 {
            self.customers_of_a_name(of, in_district, text)?;
        }
        writeln!(
            text,
            "update customer set c_balance = c_balance - {amount}, c_ytd = c_ytd + {amount}, c_payments = c_payments + 1 \
             where c_w_id = {of} and c_d_id = {in_district} and c_id = {c};"
        )?;
        writeln!(text, "insert into history values({w}, {d}, {of}, {in_district}, {c}, {amount}, 'paid');")
    }

    fn customers_of_a_name(&mut self, w: u64, d: u64, text: &mut String) -> std::fmt::Result {
        let name = name(self.random.below(NAMES));
        writeln!(
            text,
            "select c_id, c_balance from customer where c_w_id = {w} and c_d_id = {d} and c_last = '{name}' order by c_first;"
        )
    }

    fn order_status(&mut self, text: &mut String) -> std::fmt::Result {
        let (w, d, c) = (self.warehouse, self.district(), self.customer());
        self.customers_of_a_name(w, d, text)?;
        writeln!(
            text,
            "select l_i_id, l_supply_w_id, l_quantity, l_amount, l_delivered from order_line where l_w_id = {w} and \
             l_d_id = {d} and l_o_id = (select max(o_id) from orders where o_w_id = {w} and o_d_id = {d} and o_c_id = {c});"
        )
    }

    fn delivery(&mut self, text: &mut String) -> std::fmt::Result {
        let (w, carrier) = (self.warehouse, 1 + self.random.below(10));
        for d in 1..=DISTRICTS {
            // In a table of its own: one server does not delete from a table that it reads.
            let oldest = format!(
                "(select o from (select min(n_o_id) as o from new_order where n_w_id = {w} and n_d_id = {d}) as oldest)"
            );
            writeln!(
                text,
                "update orders set o_carrier = {carrier} where o_w_id = {w} and o_d_id = {d} and o_id = {oldest};"
            )?;
            writeln!(
                text,
                "update order_line set l_delivered = 1 where l_w_id = {w} and l_d_id = {d} and l_o_id = {oldest};"
            )?;
            writeln!(
                text,
                "update customer set c_deliveries = c_deliveries + 1, c_balance = c_balance + coalesce((select sum(l_amount) \
                 from order_line where l_w_id = {w} and l_d_id = {d} and l_o_id = {oldest}), 0) where c_w_id = {w} and \
                 c_d_id = {d} and c_id = (select o_c_id from orders where o_w_id = {w} and o_d_id = {d} and o_id = {oldest});"
            )?;
            writeln!(text, "delete from new_order where n_w_id = {w} and n_d_id = {d} and n_o_id = {oldest};")?;
        }
        Ok(())
    }

    fn stock_level(&mut self, text: &mut String) -> std::fmt::Result {
        let (w, d, low) = (self.warehouse, self.district(), 10 + self.random.below(11));
        writeln!(
            text,
            "select count(distinct s_i_id) from district, order_line, stock where d_w_id = {w} and d_id = {d} and \
             l_w_id = {w} and l_d_id = {d} and l_o_id between d_next_o_id - 20 and d_next_o_id - 1 and s_w_id = {w} and \
             s_i_id = l_i_id and s_quantity < {low};"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_the_specifications() {
        let mut user = User::new(Size::for_transactions(5000), 3);
        let transactions: Vec<_> = (0..2000).map(|_| user.transaction()).collect();
        let share = |word: &str| transactions.iter().filter(|text| text.contains(word)).count() * 100 / 2000;
        assert!((42..48).contains(&share("insert into orders")), "{}", share("insert into orders"));
        assert!((40..46).contains(&share("insert into history")), "{}", share("insert into history"));
        assert!((2..6).contains(&share("delete from new_order")), "{}", share("delete from new_order"));
        let lines = transactions.iter().map(|text| text.matches("insert into order_line").count()).max();
        assert_eq!(lines, Some(15));
    }

    #[test]
    fn rows_are_in_statements_of_many() {
        let text = rows(Size::for_transactions(10));
        let statements = text.matches("insert into").count();
        assert_eq!(text.matches(";\n").count(), statements);
        assert!(text.matches("abcdefghijklmnopqrstuvwxyz").count() > 100 && statements < 800, "{statements}");
        assert!(text.lines().all(|line| line.ends_with(");")));
    }
}
