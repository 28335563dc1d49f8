//! A call can be read without its function: no `bool` stands between other arguments.

use crate::exceptions::Measured;
use crate::rules::layers::Layers;
use crate::source::SourceFile;
use crate::workspace::Workspace;
use syn::visit::Visit;

/// Other parameters from which on a `bool` is unreadable in a call.
const OTHERS_MIN: usize = 2;

/// Functions of the product with a `bool` beside two or more other parameters, the receiver not
/// counted.
pub(crate) fn bools(workspace: &Workspace, layers: &Layers) -> Vec<Measured> {
    let product = workspace.sources.iter().filter(|file| layers.is_product(&file.krate));
    product.flat_map(of_file).collect()
}

fn of_file(file: &SourceFile) -> Vec<Measured> {
    let mut functions = Functions { found: Vec::new() };
    functions.visit_file(&file.syntax);
    let product = functions.found.into_iter().filter(|(_, line)| !file.is_test(*line));
    product
        .map(|(name, line)| Measured {
            file: file.path.clone(),
            line,
            rule: "bool-parameter",
            place: "all".to_owned(),
            item: String::new(),
            size: 1,
            advice: format!("`{name}` takes a `bool` among others: make it an enum with two names, or two functions"),
        })
        .collect()
}

struct Functions {
    found: Vec<(String, usize)>,
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let parameters = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(typed) => Some(&*typed.ty),
            syn::FnArg::Receiver(_) => None,
        });
        let types: Vec<_> = parameters.collect();
        let is_bool = |ty: &&&syn::Type| matches!(ty, syn::Type::Path(path) if path.path.is_ident("bool"));
        let bools = types.iter().filter(is_bool).count();
        if bools > 0 && types.len() > OTHERS_MIN {
            self.found.push((signature.ident.to_string(), signature.ident.span().start().line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    #[test]
    fn bools_among_other_parameters_are_found() {
        let count = |text| of_file(&sample("crates/a/src/x.rs", text)).len();
        assert_eq!(count("fn f(a: u8, b: bool, c: u8) {} impl T { fn g(&self, a: bool, b: bool, c: bool) {} }"), 2);
        assert_eq!(count("fn f(a: u8, b: bool) {} impl T { fn g(&self, a: u8, b: bool) {} }"), 0);
        assert_eq!(count("#[cfg(test)] fn f(a: u8, b: bool, c: u8) {}"), 0);
    }
}
