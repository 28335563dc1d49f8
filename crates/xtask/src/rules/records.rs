//! Records on the medium have one layout on every machine.

use crate::source::{Finding, SourceFile};
use syn::visit::Visit;

const FICKLE: [&str; 16] = [
    "bool", "char", "usize", "isize", "u16", "u32", "u64", "u128", "i16", "i32", "i64", "i128", "f32", "f64", "String",
    "Vec",
];

/// Fields of byte-for-byte records whose type depends on the machine, or has bit patterns that are
/// no value.
pub(crate) fn fields(file: &SourceFile) -> Vec<Finding> {
    let mut records = Records { file, found: Vec::new() };
    records.visit_file(&file.syntax);
    records.found
}

/// The lines of byte-for-byte records. A transparent wrapper has the bytes of the record in it, and
/// is none of its own.
pub(crate) fn records(file: &SourceFile) -> Vec<usize> {
    let mut lines = RecordLines(Vec::new());
    lines.visit_file(&file.syntax);
    lines.0
}

struct RecordLines(Vec<usize>);

impl<'ast> Visit<'ast> for RecordLines {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if is_record(&item.attrs) && !is_transparent(&item.attrs) {
            self.0.push(item.ident.span().start().line);
        }
    }
}

struct Records<'a> {
    file: &'a SourceFile,
    found: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Records<'_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if is_record(&item.attrs) {
            let mut fields = FieldTypes { fickle: Vec::new() };
            fields.visit_fields(&item.fields);
            for (name, line) in fields.fickle {
                let advice =
                    format!("`{name}` differs between machines or has invalid values: use a little-endian type");
                self.found.push(self.file.finding(line, "record-field", advice));
            }
        }
    }
}

/// Whether a struct is read from and written to raw bytes.
fn is_record(attrs: &[syn::Attribute]) -> bool {
    let derives = attrs.iter().filter(|attr| attr.path().is_ident("derive"));
    let lists = derives.filter_map(|attr| attr.meta.require_list().ok());
    lists.into_iter().any(|list| {
        let traits = list.tokens.to_string();
        traits.split(|c: char| !c.is_alphanumeric()).any(|name| name == "FromBytes" || name == "IntoBytes")
    })
}

fn is_transparent(attrs: &[syn::Attribute]) -> bool {
    let mut reprs = attrs.iter().filter(|attr| attr.path().is_ident("repr"));
    reprs.any(|attr| attr.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "transparent"))
}

struct FieldTypes {
    fickle: Vec<(String, usize)>,
}

impl<'ast> Visit<'ast> for FieldTypes {
    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        if let Some(ident) =
            path.path.get_ident().map(ToString::to_string).filter(|name| FICKLE.contains(&name.as_str()))
        {
            self.fickle.push((ident, path.path.segments[0].ident.span().start().line));
        }
        syn::visit::visit_type_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn found(text: &str) -> usize {
        fields(&sample("crates/layout/src/x.rs", text)).len()
    }

    #[test]
    fn fickle_fields_are_found() {
        assert_eq!(found("#[derive(FromBytes, Immutable)] struct R { a: u32, b: [usize; 2] }"), 2);
    }

    #[test]
    fn a_transparent_wrapper_is_no_record_of_its_own() {
        let lines = |text: &str| records(&sample("crates/layout/src/x.rs", text));
        assert_eq!(lines("#[derive(IntoBytes)]\n#[repr(C)]\nstruct R { a: U32 }"), [3]);
        assert_eq!(lines("#[derive(IntoBytes)]\n#[repr(transparent)]\nstruct W(RingElement);"), [0; 0]);
    }

    #[test]
    fn little_endian_fields_are_accepted() {
        assert_eq!(found("#[derive(FromBytes, IntoBytes)] struct R { a: U32, b: [u8; 16], c: [U64; N] }"), 0);
        assert_eq!(found("struct Trusted { a: u32 }"), 0);
    }
}
