"""Authorities that issue certificates of clients, and revoke them."""

from tls_server import openssl


class Issuer:
    """An authority with `openssl ca`, which keeps an account of what it issues and revokes."""

    def __init__(self, folder, name, above=None):
        self.folder, self.name, self.above = folder / name, name, above
        self.folder.mkdir()
        self.folder.joinpath("index.txt").write_text("")
        self.folder.joinpath("crlnumber").write_text("01\n")
        self.settings = self.folder / "ca.cnf"
        self.settings.write_text(
            f"[ca]\ndefault_ca = own\n[own]\ndatabase = {self.folder}/index.txt\ncrlnumber = {self.folder}/crlnumber\n"
            f"new_certs_dir = {self.folder}\ndefault_md = sha256\ndefault_days = 2\npolicy = any\nrand_serial = yes\n"
            f"certificate = {self.folder}/ca.crt\nprivate_key = {self.folder}/ca.key\nunique_subject = no\n"
            "[any]\ncommonName = supplied\n"
            "[authority]\nbasicConstraints = critical,CA:TRUE\nkeyUsage = keyCertSign,cRLSign\n"
            "[client]\nbasicConstraints = CA:FALSE\nextendedKeyUsage = clientAuth\n"
        )
        (above or self).issue(name, "authority", self.folder / "ca.key", self.folder / "ca.crt", itself=above is None)
        self.cert = self.folder.joinpath("ca.crt").read_bytes()

    def issue(self, name, kind, key, cert, itself=False):
        asked = self.folder / f"{name}.csr"
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", key, "-out", asked)
        openssl("ca", "-batch", "-config", self.settings, "-in", asked, "-out", cert, "-notext", "-extensions", kind,
                *(["-selfsign"] if itself else []))

    def client(self, name):
        """The path of a client's certificate, its key, and the chain above it without the root."""
        key, cert, pair = (self.folder / f"{name}.{end}" for end in ("key", "crt", "pair"))
        self.issue(name, "client", key, cert)
        chain = self.cert if self.above else b""
        pair.write_bytes(cert.read_bytes() + chain + key.read_bytes())
        return pair

    def revoke(self, cert):
        openssl("ca", "-config", self.settings, "-revoke", cert)

    def crl(self, form="PEM", hold=("-crldays", "2"), **settings):
        made = openssl("ca", "-config", self.settings, "-gencrl", *hold, **settings)
        return openssl("crl", "-outform", form, input=made)
