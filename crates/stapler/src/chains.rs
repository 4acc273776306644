//! Chains of certificates, put together from the messages of the signer.
//!
//! Runs in: the stapler. Sees: messages of the signer, which is more trusted. Never: keeps parts that do not fit.

use std::collections::BTreeMap;

use rustls_pki_types::CertificateDer;
use wire::stapler::SignerToStapler;

/// A site, and the number of one of its certificates.
pub(crate) type CertificateId = (u16, u16);

/// Those that have arrived in part.
#[derive(Debug, Default)]
pub(crate) struct Chains(BTreeMap<CertificateId, Vec<CertificateDer<'static>>>);

impl Chains {
    /// Takes a part; parts of a chain come in order. The chain, once it is whole.
    pub(crate) fn take(
        &mut self,
        part: SignerToStapler,
    ) -> Option<(CertificateId, Vec<CertificateDer<'static>>)> {
        let SignerToStapler::Certificate { site, number, index, count, der } = part;
        let id = (site, number);
        if index == 0 {
            self.0.insert(id, Vec::new());
        }
        let parts = self.0.get_mut(&id).filter(|parts| parts.len() == usize::from(index))?;
        parts.push(CertificateDer::from(der.0));
        let whole = parts.len() == usize::from(count);
        whole.then(|| self.0.remove(&id)).flatten().map(|chain| (id, chain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Bytes;

    #[test]
    fn parts_come_in_order_or_not_at_all() {
        let mut chains = Chains::default();
        let part = |number, index, count| SignerToStapler::Certificate {
            site: 1,
            number,
            index,
            count,
            der: Bytes(vec![index]),
        };
        assert_eq!(chains.take(part(1, 1, 2)), None, "the first is missing");
        assert_eq!(chains.take(part(1, 0, 2)), None);
        assert_eq!(chains.take(part(2, 0, 1)), Some(((1, 2), vec![CertificateDer::from(vec![0])])));
        let whole = vec![CertificateDer::from(vec![0]), CertificateDer::from(vec![1])];
        assert_eq!(chains.take(part(1, 1, 2)), Some(((1, 1), whole)));
        assert_eq!(chains.take(part(1, 1, 2)), None, "it is over");
        assert!([0, 2, 1].into_iter().all(|index| chains.take(part(3, index, 3)).is_none()), "out of order");
    }
}
