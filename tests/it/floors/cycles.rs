//! Dependencies between files, and the search for a cycle among them.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Import, Named, Source, absolute};

/// The files whose items each file uses, with one of those items.
pub(super) type Dependencies<'a> = BTreeMap<(&'a str, &'a str), String>;

/// Finds the file that defines an item.
struct Resolver<'a> {
    /// The path of the file of each module.
    files: BTreeMap<&'a [String], &'a str>,
    imports: BTreeMap<&'a [String], Vec<&'a Import>>,
}

/// More re-exports of one item than any has.
const MAX_EXPORTS: usize = 12;

// === impl Resolver ===

impl<'a> Resolver<'a> {
    fn new(sources: &'a [Source]) -> Self {
        let mut files = BTreeMap::new();
        let mut imports: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for source in sources {
            let path = source.path.to_str().unwrap();
            files.insert(&*source.module, path);
            files.extend(source.code.inline.iter().map(|module| (&**module, path)));
            for import in &source.code.imports {
                imports.entry(&*import.module).or_default().push(import);
            }
        }
        Self { files, imports }
    }

    /// Returns the file that defines the first item of a path; `None` if the path ends with a
    /// module or leads out of the crate.
    fn file(&self, module: &[String], path: &[String], exports: usize) -> Option<&'a str> {
        let path = self.within_crate(module, path, exports)?;
        let items = (1..=path.len()).find(|&length| !self.files.contains_key(&path[..length]))?;
        let (module, item) = (&path[..items - 1], &path[items - 1]);
        let import = self.imports.get(module).into_iter().flatten().find(|import| {
            // An import of a child module with the name of the item, such as `use item::item`.
            import.name == *item && import.path != path[..items]
        });
        let Some(import) = import.filter(|_| exports < MAX_EXPORTS) else {
            return self.files.get(module).copied();
        };
        self.file(module, &[&import.path, &path[items..]].concat(), exports + 1)
    }

    /// Returns a path in the code of a module from `crate`.
    fn within_crate(&self, module: &[String], path: &[String], exports: usize) -> Option<Named> {
        let path = absolute(module, path);
        if path[0] == "crate" {
            return Some(path);
        }
        let child = [module, &path[..1]].concat();
        if self.files.contains_key(&*child) {
            return Some([module, &path].concat());
        }
        let mut imports = self.imports.get(module).into_iter().flatten();
        let import = imports.find(|import| import.name == path[0] && import.path[0] != path[0])?;
        let path = [&import.path, &path[1..]].concat();
        (exports < MAX_EXPORTS).then(|| self.within_crate(module, &path, exports + 1))?
    }
}

/// Returns the dependencies between files; exports and `mod` declarations are none.
pub(super) fn dependencies(sources: &[Source]) -> Dependencies<'_> {
    let resolver = Resolver::new(sources);
    let mut dependencies = BTreeMap::new();
    for source in sources {
        let path = source.path.to_str().unwrap();
        let imports = source.code.imports.iter().filter(|import| !import.is_export);
        let imports = imports.map(|import| (&import.module, &import.path));
        let used = source.code.used.iter().filter(|(_, path)| path.len() > 1);
        for (module, used) in imports.chain(used.map(|(module, path)| (module, path))) {
            let file = resolver.file(module, used, 0).filter(|file| *file != path);
            if let Some(file) = file {
                dependencies.entry((path, file)).or_insert_with(|| used.join("::"));
            }
        }
    }
    dependencies
}

/// Returns the dependencies that lead from a file back to it, if there are any.
pub(super) fn first_cycle(dependencies: &Dependencies<'_>) -> Vec<String> {
    let mut rest: BTreeSet<_> = dependencies.keys().copied().collect();
    loop {
        let users: BTreeSet<_> = rest.iter().map(|(user, _)| *user).collect();
        let before = rest.len();
        rest.retain(|(_, used)| users.contains(used));
        if rest.len() == before {
            break;
        }
    }
    let mut route: Vec<&str> = rest.first().map(|(user, _)| *user).into_iter().collect();
    while let Some(&last) = route.last() {
        let (_, next) = *rest.range((last, "")..).next().unwrap();
        if let Some(start) = route.iter().position(|file| *file == next) {
            route.drain(..start);
            route.push(next);
            break;
        }
        route.push(next);
    }
    let uses = |pair: &[&str]| {
        let item = &dependencies[&(pair[0], pair[1])];
        format!("{} uses {item} of {}", pair[0], pair[1])
    };
    route.windows(2).map(uses).collect()
}
