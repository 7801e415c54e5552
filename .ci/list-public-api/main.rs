//! Lists the public items of a crate, from the JSON of rustdoc at the path in the first argument.

use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let json = env::args_os().nth(1).ok_or("expected the path of the JSON of rustdoc")?;
    let interface = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    print!("{interface}");
    Ok(())
}
