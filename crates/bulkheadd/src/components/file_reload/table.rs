//! The files that are read again, by the sites that name them.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: looks at the files of a site that is as it
//! was, when another one has changed.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use config::{Config, Opener, SharedList, Site};
use supervisor::change::FileId;
use supervisor::setup::names::{self, NamesFile};
use supervisor::setup::stapler;

use super::file::{Purpose, ReloadedFile, files_of};

/// The row of the files about names.
pub(super) const NAMES: usize = 0;

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePlace {
    row: usize,
    at: usize,
}

/// The files that one site names, or that none does.
#[derive(Debug, Default)]
struct Row {
    files: Vec<ReloadedFile>,
    /// Whether they are of a site that names servers by a host.
    has_named_servers: bool,
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    /// Those about names, which no site names, and then those of each site, by number.
    rows: Vec<Row>,
    /// The sites whose files these are, by number.
    sites: SharedList<Arc<Site>>,
}

impl FileTable {
    /// Has the files of this configuration. Those that it shares with the one before are as they were.
    pub(super) fn adopt(&mut self, config: &Config, opener: &Opener) {
        self.rows.resize_with(1 + config.sites.len(), Row::default);
        for number in self.sites.differing(&config.sites, Arc::ptr_eq) {
            let Some(about) = config.sites.get(number) else { continue };
            let row = &mut self.rows[1 + number];
            row.change(files_of(number as u16, about), opener);
            row.has_named_servers = names::has_named_servers(about);
        }
        self.sites = config.sites.clone();
        let are_looked_up = stapler::is_wanted(config) || self.rows.iter().any(|row| row.has_named_servers);
        let names = NamesFile::ALL.into_iter().filter(|_| are_looked_up);
        let names = names.map(|which| ReloadedFile::new(Purpose::Names(which), which.path().into()));
        self.rows[NAMES].change(names.collect(), opener);
    }

    /// How many files there are in a row.
    pub(super) fn len_of(&self, row: usize) -> usize {
        self.rows.get(row).map_or(0, |row| row.files.len())
    }

    /// How many rows there are, if there is a file.
    pub(super) fn rows(&self) -> usize {
        let has_any = self.rows.iter().any(|row| !row.files.is_empty());
        if has_any { self.rows.len() } else { 0 }
    }

    /// The places of a row.
    pub(super) fn places(&self, row: usize) -> impl Iterator<Item = FilePlace> + use<> {
        (0..self.len_of(row)).map(move |at| FilePlace { row, at })
    }

    /// The places of the files that a site names.
    pub(super) fn places_of(&self, site: u16) -> impl Iterator<Item = FilePlace> + use<> {
        self.places(1 + usize::from(site))
    }

    /// Where a certificate is, by its site and number.
    pub(super) fn certificate(&self, (site, number): (u16, u16)) -> Option<FilePlace> {
        // A site's certificates are its first files.
        let place = FilePlace { row: 1 + usize::from(site), at: number.into() };
        let file = self.rows.get(place.row)?.files.get(place.at)?;
        (file.purpose == Purpose::Certificate { site, number }).then_some(place)
    }

    /// All certificates, each by its site and number.
    pub(super) fn certificates(&self) -> impl Iterator<Item = ((u16, u16), &ReloadedFile)> {
        self.iter().filter_map(|file| match file.purpose {
            Purpose::Certificate { site, number } => Some(((site, number), file)),
            _ => None,
        })
    }

    /// Where a file is.
    pub(super) fn place_of(&self, file: &FileId) -> Option<FilePlace> {
        let is_it = |known: &ReloadedFile| known.path == file.path && known.purpose.id(&known.path) == *file;
        let mut places = self.places(file.site.map_or(NAMES, |site| 1 + usize::from(site)));
        places.find(|&place| is_it(&self[place]))
    }

    /// All files.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ReloadedFile> {
        self.rows.iter().flat_map(|row| &row.files)
    }

    /// The same, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ReloadedFile> {
        self.rows.iter_mut().flat_map(|row| &mut row.files)
    }
}

impl Row {
    /// Has these files. Those that there were before are as they were.
    fn change(&mut self, files: Vec<ReloadedFile>, opener: &Opener) {
        let mut old = std::mem::take(&mut self.files);
        self.files = files.into_iter().map(|new| new.or_as_before(&mut old, opener)).collect();
        // Most sites have one file, and each copy of the launcher takes the longer the more memory it has.
        self.files.shrink_to_fit();
    }
}

impl Index<FilePlace> for FileTable {
    type Output = ReloadedFile;

    fn index(&self, FilePlace { row, at }: FilePlace) -> &ReloadedFile {
        &self.rows[row].files[at]
    }
}

impl IndexMut<FilePlace> for FileTable {
    fn index_mut(&mut self, FilePlace { row, at }: FilePlace) -> &mut ReloadedFile {
        &mut self.rows[row].files[at]
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(sites: &[(&str, &str)]) -> Config {
        let site = |(name, more): &(&str, &str)| {
            format!("[[site]]\nname = '{name}'\nhost = ['{name}']\nroot = 'r'\n{more}\n")
        };
        let text: String = sites.iter().map(site).collect();
        let text = format!("[[listen]]\naddress = '127.0.0.1:1'\ntls = true\n{text}");
        Config::parse(&text, "f", Path::new("/srv")).unwrap()
    }

    #[test]
    fn files_are_found_by_their_sites_and_stay_what_they_are() {
        let (opener, mut table) = (Opener::of(Path::new("/srv")), FileTable::default());
        let two = "certificates = ['one.pem', 'two.pem']";
        let before = config(&[("a", two), ("b", "certificates = ['b.pem']")]);
        table.adopt(&before, &opener);
        assert_eq!((table.rows(), table.len_of(1), table.len_of(2), table.len_of(3)), (3, 2, 1, 0));
        let path = |table: &FileTable, id| Some(table[table.certificate(id)?].path.clone());
        assert_eq!(path(&table, (0, 1)), Some("/srv/two.pem".into()));
        assert!(path(&table, (0, 2)).or(path(&table, (2, 0))).is_none());
        table.iter_mut().for_each(|file| file.is_judged = true);
        // One of a site's has gone, and another site is a place without files.
        let mut after = config(&[("a", "certificates = ['two.pem', 'new.pem']"), ("b", ""), ("c", two)]);
        table.adopt(&after, &opener);
        let ids: Vec<_> = table.certificates().map(|(id, file)| (id, file.is_judged)).collect();
        assert_eq!(ids, [((0, 0), false), ((0, 1), false), ((2, 0), false), ((2, 1), false)]);
        table.iter_mut().for_each(|file| file.is_judged = true);
        // Another object that says the same, and one that says something else.
        after.sites =
            config(&[("a", "certificates = ['two.pem', 'other.pem']"), ("b", ""), ("c", two)]).sites;
        table.adopt(&after, &opener);
        let ids: Vec<_> = table.certificates().map(|(id, file)| (id, file.is_judged)).collect();
        assert_eq!(ids, [((0, 0), true), ((0, 1), false), ((2, 0), true), ((2, 1), true)]);
        after.sites.truncate(1);
        table.adopt(&after, &opener);
        assert_eq!((table.rows(), table.certificates().count()), (2, 2));
    }
}
