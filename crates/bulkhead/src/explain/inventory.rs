//! The list of what there is to lose, found by name and by folder; and what one process reaches of it.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the operator's configuration. Never: looks through the whole
//! list for one name, as there may be a hundred thousand.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Deref, Range};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::model::{Asset, AssetKind, Loss, Reach};

/// All assets, in the order of tables; a copy is the same list.
#[derive(Clone, Debug, Default)]
pub struct Assets(Rc<Inventory>);

#[derive(Debug, Default)]
struct Inventory {
    list: Vec<Asset>,
    /// The number of each.
    by_name: HashMap<AssetKind, HashMap<String, usize>>,
    /// Those that are files, by their folders. A folder that is written in two ways is two assets.
    by_folder: BTreeMap<PathBuf, Vec<usize>>,
    /// The numbers of each site's, which stand together.
    by_site: HashMap<usize, Range<usize>>,
}

impl Deref for Assets {
    type Target = [Asset];

    fn deref(&self) -> &[Asset] {
        &self.0.list
    }
}

impl FromIterator<Asset> for Assets {
    fn from_iter<I: IntoIterator<Item = Asset>>(assets: I) -> Self {
        let mut listing = Listing::default();
        assets.into_iter().for_each(|asset| listing.add(asset, None));
        listing.done()
    }
}

/// Assets, as they are being listed.
#[derive(Debug, Default)]
pub struct Listing(Inventory);

impl Listing {
    /// Adds an asset, with the folder of files. What several have, a folder that they read, is one asset: the first.
    pub fn add(&mut self, asset: Asset, folder: Option<&Path>) {
        let number = self.0.list.len();
        let names = self.0.by_name.entry(asset.kind).or_default();
        if names.contains_key(&asset.name) {
            return;
        }
        names.insert(asset.name.clone(), number);
        if let Some(folder) = folder {
            self.0.by_folder.entry(folder.into()).or_default().push(number);
        }
        if let Some(site) = asset.site {
            self.0.by_site.entry(site).or_insert(number..number).end = number + 1;
        }
        self.0.list.push(asset);
    }

    /// The list.
    pub fn done(self) -> Assets {
        Assets(Rc::new(self.0))
    }
}

impl Assets {
    /// How many there are of some kinds.
    pub fn count(&self, kinds: &[AssetKind]) -> usize {
        kinds.iter().filter_map(|kind| self.0.by_name.get(kind)).map(HashMap::len).sum()
    }

    fn find(&self, kind: AssetKind, name: &str) -> Option<usize> {
        self.0.by_name.get(&kind)?.get(name).copied()
    }

    /// The folders inside of one, and the one itself; paths are sorted by their components.
    fn inside(&self, folder: &Path) -> impl Iterator<Item = usize> {
        let from = (Bound::Included(folder), Bound::Unbounded);
        let folders = self.0.by_folder.range::<Path, _>(from);
        folders
            .take_while(move |(other, _)| other.starts_with(folder))
            .flat_map(|(_, numbers)| numbers)
            .copied()
    }

    /// The folders that one is inside of.
    fn around(&self, folder: &Path) -> impl Iterator<Item = usize> {
        let parents = folder.ancestors().skip(1).filter_map(|parent| self.0.by_folder.get(parent));
        parents.flatten().copied()
    }
}

/// What one process reaches, as it is being found out.
#[derive(Debug)]
pub struct Reaches<'a> {
    assets: &'a Assets,
    found: Vec<Reach>,
}

impl<'a> Reaches<'a> {
    /// Nothing yet.
    pub fn of(assets: &'a Assets) -> Self {
        Self { assets, found: Vec::new() }
    }

    /// Adds each asset that fits; looks at all of them.
    pub fn each(mut self, fits: impl Fn(&Asset) -> bool, loss: Loss, how: &str) -> Self {
        let how: Rc<str> = how.into();
        let fitting = self.assets.iter().enumerate().filter(|(_, asset)| fits(asset));
        self.found.extend(fitting.map(|(asset, _)| Reach { asset, loss, how: how.clone() }));
        self
    }

    /// Adds each asset of a site that fits.
    pub fn of_site(mut self, site: usize, fits: impl Fn(&Asset) -> bool, loss: Loss, how: &str) -> Self {
        let how: Rc<str> = how.into();
        let own = self.assets.0.by_site.get(&site).cloned().unwrap_or_default();
        let fitting = own.filter(|&asset| fits(&self.assets[asset]));
        self.found.extend(fitting.map(|asset| Reach { asset, loss, how: how.clone() }));
        self
    }

    /// Adds the one asset of a kind that has a name.
    pub fn one(mut self, kind: AssetKind, name: &str, loss: Loss, how: &str) -> Self {
        let found = self.assets.find(kind, name);
        self.found.extend(found.map(|asset| Reach { asset, loss, how: how.into() }));
        self
    }

    /// Adds a folder, every folder inside of it, and a part of each that it is inside of.
    pub fn files(mut self, folder: &Path, how: &str) -> Self {
        let how: Rc<str> = how.into();
        let reach = |asset, loss| Reach { asset, loss, how: how.clone() };
        self.found.extend(self.assets.inside(folder).map(|asset| reach(asset, Loss::Whole)));
        self.found.extend(self.assets.around(folder).map(|asset| reach(asset, Loss::Part)));
        self
    }

    /// What was found.
    pub fn done(self) -> Vec<Reach> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::super::assets::{of, tests::demo};
    use super::super::granted::GrantedCalls;
    use super::*;

    #[test]
    fn reaches_are_found_by_name() {
        let assets = of(&demo(), &GrantedCalls::default());
        let found = Reaches::of(&assets)
            .one(AssetKind::Users, "other", Loss::Part, "so")
            .one(AssetKind::Users, "nobody", Loss::Part, "so")
            .each(|asset| asset.kind == AssetKind::Log, Loss::Whole, "all")
            .done();
        assert_eq!(found.len(), 5);
        assert_eq!(found[0], Reach { asset: 13, loss: Loss::Part, how: "so".into() });
        assert_eq!(assets.count(&[AssetKind::Log, AssetKind::Site, AssetKind::Keys]), 6);
    }

    #[test]
    fn folders_are_found_by_what_is_around_them() {
        let mut listing = Listing::default();
        for path in ["/a", "/a/b", "/a/b/c", "/a-b", "/ab", "/"] {
            let asset = Asset { kind: AssetKind::Files, name: path.into(), label: String::new(), site: None };
            listing.add(asset, Some(Path::new(path)));
        }
        let assets = listing.done();
        let found = |folder: &str| {
            let reaches = Reaches::of(&assets).files(Path::new(folder), "so").done();
            reaches.iter().map(|reach| (&*assets[reach.asset].name, reach.loss)).collect::<Vec<_>>()
        };
        let (whole, part) = (Loss::Whole, Loss::Part);
        assert_eq!(found("/a"), [("/a", whole), ("/a/b", whole), ("/a/b/c", whole), ("/", part)]);
        assert_eq!(found("/a/b/c/"), [("/a/b/c", whole), ("/a/b", part), ("/a", part), ("/", part)]);
        assert_eq!(found("/ab/x"), [("/ab", part), ("/", part)]);
        assert_eq!(found("/").len(), 6);
    }
}
