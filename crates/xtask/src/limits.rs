//! The page of limits: named constants of the product with their values, read from the code.

use crate::source::SourceFile;
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use syn::visit::{self, Visit};

/// A limit: the constant, with its crate if the name is there twice, and what it limits.
type Limit = (&'static str, &'static str);

/// Every limit that users meet, below a heading each.
const LIMITS: [(&str, &[Limit]); 4] = [
    (
        "Volumes and disk caches",
        &[
            ("ARENA_BYTES_MIN", "the least arena of a BTT; a shorter rest of a region is not used"),
            ("ARENA_BYTES_MAX", "the largest arena of a BTT; larger volumes have several"),
            ("CACHE_BYTES_MIN", "the least write cache (`serve --write-cache`)"),
            ("REGION_BYTES_MIN", "the least region in front of a disk (`create --disk`)"),
            ("CACHE_BLOCK_BYTES_MIN", "the smallest block of a disk cache"),
            ("CACHE_BLOCK_BYTES_MAX", "the largest block of a disk cache"),
            ("ATOMIC_BYTES_MAX", "the largest write that a disk cache commits as a whole; less in a small region"),
            ("PAUSE_MAX", "the longest delay of one write by the throttle, while too many blocks are dirty"),
        ],
    ),
    (
        "Servers",
        &[
            ("CONNECTIONS_MAX", "connections served at once, unless `--connections-max` says otherwise"),
            ("EXPORTS_MAX", "exports of one server"),
            ("SOCKET_PATH_BYTES_MAX", "bytes in the path of a unix socket"),
            (
                "FINISHING_MAX",
                "time for requests in progress when a server ends, before connections are cut and once more after that",
            ),
            ("WATCHERS_MAX", "clients of all control sockets at once, and of the metrics"),
            ("REQUEST_PATIENCE", "time for one request on a control socket"),
            ("ANSWER_PATIENCE", "time for the answer of a server or mount on its control socket"),
            ("SCRAPE_PATIENCE", "time for one scrape of the metrics"),
            ("MOUNT_PATIENCE", "time for the answer of a mount to one scrape"),
            ("SAMPLE_EVERY", "time between two samples for the page of the metrics"),
            ("server::SAMPLES_MAX", "samples that are kept for it: those of an hour"),
        ],
    ),
    (
        "NBD",
        &[
            ("PAYLOAD_BYTES_MAX", "bytes of one READ or WRITE"),
            ("WHOLE_WRITE_BYTES_MAX", "the longest write that reaches a device in one piece"),
            ("WHOLE_REPLY_BYTES_MAX", "the longest READ that is answered in one piece"),
            ("BLOCK_BYTES_MAX", "the largest block of a device that can be exported"),
            ("STRING_BYTES_MAX", "bytes of a name or a description"),
            ("STATUS_EXTENTS_MAX", "extents in the answer to one BLOCK_STATUS"),
            ("CONNECTION_BYTES_MAX", "memory for the buffers of one connection without encryption"),
        ],
    ),
    (
        "Reports",
        &[
            ("btt::FINDINGS_MAX", "damaged places that an error names, beside the count of all"),
            ("NAMED_MAX", "damaged blocks that `tidegate scrub` names, beside the count of all"),
        ],
    ),
];

/// Returns the page, or which constant is not there.
pub(crate) fn page(workspace: &Workspace) -> Result<String, String> {
    let constants = Constants::of(&workspace.sources);
    let mut page = "# Limits\n\nThis page is made from the code: `cargo xtask bless` writes it. Each limit is a constant of this\nname.\n".to_owned();
    for (heading, limits) in LIMITS {
        page += &format!("\n## {heading}\n\n| limit | value | what it limits |\n| --- | ---: | --- |\n");
        for (path, meaning) in limits {
            let name = path.rsplit("::").next().unwrap_or(path);
            let value = constants.value(path)?;
            page += &format!("| `{name}` | {} | {meaning} |\n", value.shown(name));
        }
    }
    Ok(page)
}

/// What a constant is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Number(u128),
    Nanoseconds(u128),
}

impl Value {
    fn shown(self, name: &str) -> String {
        match self {
            Value::Nanoseconds(ns) if ns % 1_000_000_000 == 0 => format!("{} s", ns / 1_000_000_000),
            Value::Nanoseconds(ns) => format!("{} ms", ns as f64 / 1e6),
            Value::Number(number) if name.contains("BYTES") => bytes(number),
            Value::Number(number) if name.contains("PERCENT") => format!("{number} %"),
            Value::Number(number) => number.to_string(),
        }
    }
}

fn bytes(number: u128) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(bits, _)| number >= 1 << bits && number.is_multiple_of(1 << bits));
    unit.map_or_else(|| format!("{number} bytes"), |(bits, unit)| format!("{} {unit}", number >> bits))
}

/// Every constant with the file it stands in.
struct Constants<'a>(BTreeMap<String, Vec<(&'a SourceFile, &'a syn::Expr)>>);

impl<'a> Constants<'a> {
    fn of(sources: &'a [SourceFile]) -> Constants<'a> {
        let mut found = Constants(BTreeMap::new());
        for file in sources.iter().filter(|file| !file.tests_only) {
            let mut of_file = OfFile { file, found: &mut found };
            of_file.visit_file(&file.syntax);
        }
        found
    }

    /// The value of `path`: a name, or a crate and a name.
    fn value(&self, path: &str) -> Result<Value, String> {
        let (krate, name) = path.rsplit_once("::").map_or((None, path), |(krate, name)| (Some(krate), name));
        let is_meant = |file: &SourceFile| krate.is_none_or(|krate| file.krate == krate);
        let all = self.0.get(name).map_or(&[][..], Vec::as_slice);
        let meant: Vec<_> = all.iter().filter(|(file, _)| is_meant(file)).collect();
        match meant[..] {
            [(file, expression)] => {
                self.evaluated(file, expression).ok_or_else(|| format!("`{path}` has a value that cannot be read"))
            }
            [] => Err(format!("there is no constant `{path}`: correct the table in crates/xtask/src/limits.rs")),
            _ => Err(format!("there are several constants `{path}`: name the crate in crates/xtask/src/limits.rs")),
        }
    }

    /// The number that `expression` in `file` is: sums, products and shifts of numbers and of
    /// other constants (the nearest of that name), and durations.
    fn evaluated(&self, file: &SourceFile, expression: &syn::Expr) -> Option<Value> {
        let number = |expression: &syn::Expr| match self.evaluated(file, expression)? {
            Value::Number(number) => Some(number),
            Value::Nanoseconds(_) => None,
        };
        match expression {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => {
                number.base10_parse().ok().map(Value::Number)
            }
            syn::Expr::Paren(inner) => self.evaluated(file, &inner.expr),
            syn::Expr::Cast(cast) => self.evaluated(file, &cast.expr),
            syn::Expr::Binary(syn::ExprBinary { left, op, right, .. }) => {
                let (left, right) = (number(left)?, number(right)?);
                let result = match op {
                    syn::BinOp::Add(_) => left.checked_add(right),
                    syn::BinOp::Sub(_) => left.checked_sub(right),
                    syn::BinOp::Mul(_) => left.checked_mul(right),
                    syn::BinOp::Div(_) => left.checked_div(right),
                    syn::BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
                    _ => None,
                };
                result.map(Value::Number)
            }
            syn::Expr::Path(path) => {
                let name = path.path.segments.last()?.ident.to_string();
                let all = self.0.get(&name)?;
                let nearness = |of: &SourceFile| (of.path == file.path, of.krate == file.krate);
                let (of, expression) = all.iter().max_by_key(|(of, _)| nearness(of))?;
                self.evaluated(of, expression)
            }
            syn::Expr::Call(call) => {
                let syn::Expr::Path(path) = &*call.func else { return None };
                let unit = match path.path.segments.last()?.ident.to_string().as_str() {
                    "from_secs" => 1_000_000_000,
                    "from_millis" => 1_000_000,
                    "from_micros" => 1_000,
                    _ => return None,
                };
                number(call.args.first()?)?.checked_mul(unit).map(Value::Nanoseconds)
            }
            _ => None,
        }
    }
}

/// Finds the constants of a file.
struct OfFile<'a, 'f> {
    file: &'a SourceFile,
    found: &'f mut Constants<'a>,
}

impl<'a> Visit<'a> for OfFile<'a, '_> {
    fn visit_item_const(&mut self, constant: &'a syn::ItemConst) {
        if !self.file.is_test(constant.ident.span().start().line) {
            self.found.0.entry(constant.ident.to_string()).or_default().push((self.file, &constant.expr));
        }
        visit::visit_item_const(self, constant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(code: &str, path: &str) -> Result<String, String> {
        let file = SourceFile::parse("crates/a/src/x.rs", "a", code).expect("it is Rust");
        let sources = [file];
        Constants::of(&sources).value(path).map(|value| value.shown(path))
    }

    #[test]
    fn constants_are_read_with_their_units() {
        let code = "const A_BYTES: u64 = 3 << 20;\nconst B_BYTES: usize = A_BYTES as usize + (1 << 10) * 4;\nconst WAIT: Duration = Duration::from_millis(500);\n#[cfg(test)]\nmod tests { const T: u8 = 1; }\n";
        assert_eq!(shown(code, "A_BYTES").as_deref(), Ok("3 MiB"));
        assert_eq!(shown(code, "a::B_BYTES").as_deref(), Ok("3076 KiB"));
        assert_eq!(shown(code, "WAIT").as_deref(), Ok("500 ms"));
        assert!(shown(code, "T").is_err() && shown(code, "b::A_BYTES").is_err());
    }
}
