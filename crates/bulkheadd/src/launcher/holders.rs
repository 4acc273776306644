//! Writes down whose the names of sites are, when the launcher starts with them and when a change of them holds.
//!
//! Runs in: the launcher, as root. Sees: the configuration that runs, and the owners of its folders. Never: fails a
//! reload: what is not written down is asked less, and the log says so.

use supervisor::site_names::generations::Generations;

use crate::launcher::Launcher;

impl Launcher {
    /// Writes down that these sites run now, and that those have gone, by number; a site that was changed is both.
    pub(super) fn keep_holders(&mut self, come: &[u16], gone: &[u16]) {
        let sites = &self.supervisor.context().config.sites;
        let at = |&number: &u16| &*sites[usize::from(number)];
        let holders = &mut self.holders;
        let kept = Generations::load(&self.supervisor.directories().state).and_then(|generations| {
            holders.go(gone.iter().map(|number| &*at(number).name));
            holders.come(come.iter().map(at).map(|site| (site, generations.get(&site.name).number)));
            holders.save()
        });
        if let Err(error) = kept {
            self.supervisor.warn(format!(
                "whose the names of sites are cannot be written down: {error}; who brings a name back is not compared with who had it"
            ));
        }
    }

    /// Writes down those that nothing is known of: a launcher of an earlier version did not.
    pub(super) fn keep_unknown_holders(&mut self) {
        let sites = &self.supervisor.context().config.sites;
        let is_unknown = |number: &u16| self.holders.get(&sites[usize::from(*number)].name).is_none();
        let unknown: Vec<u16> = self.supervisor.site_order().into_iter().filter(is_unknown).collect();
        if !unknown.is_empty() {
            self.keep_holders(&unknown, &[]);
        }
    }
}
