"""`make install`: a program finds the library by pkg-config, shared and static; the manual pages are well formed."""

import os
import shutil
import subprocess
import tempfile
import unittest

from cc_world import OUT, TOP, is_sanitized

PROGRAM = """
#include <cc.h>
#include <cc_filter.h>
int main(void)
{
    struct cc_bundle request = {.fd = -1};
    return cc_close(-1, 0) == -1 && cc_accept(-1, NULL, NULL) == -1 && cc_filter_next(&request) == -1 ? 0 : 1;
}
"""


@unittest.skipIf(is_sanitized(), "a program without the sanitizers cannot load a library with them")
class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.prefix = os.path.join(cls.folder, "usr")
        subprocess.run(["make", "-s", "-C", TOP, f"OUT={OUT}", f"PREFIX={cls.prefix}", "install"], check=True,
                       stdout=subprocess.DEVNULL)

    def build(self, *flags):
        """Compiles and runs a program with what pkg-config says."""
        variables = dict(os.environ, PKG_CONFIG_PATH=f"{self.prefix}/lib/pkgconfig",
                         LD_LIBRARY_PATH=f"{self.prefix}/lib")
        said = [subprocess.run(["pkg-config", *flags, what, "bulkhead-cc"], env=variables, check=True,
                               capture_output=True, text=True).stdout.split() for what in ("--cflags", "--libs")]
        source, program = os.path.join(self.folder, "one.c"), os.path.join(self.folder, "one")
        with open(source, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", *(["-static"] if flags else []), *said[0],
                        source, *said[1], "-o", program], check=True)
        return subprocess.run([program], env=variables, check=False).returncode

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_shared(self):
        self.assertEqual(self.build(), 0)

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_static(self):
        self.assertEqual(self.build("--static"), 0)

    def test_only_the_interface_is_exported(self):
        said = subprocess.run(["nm", "-D", "--defined-only", f"{self.prefix}/lib/libbulkheadcc.so"], check=True,
                              capture_output=True, text=True).stdout
        names = {line.split()[2] for line in said.splitlines()}
        self.assertEqual(len(names), 17)
        self.assertEqual({name for name in names if not name.startswith("cc_")}, set())

    @unittest.skipUnless(shutil.which("groff"), "no groff")
    def test_manual(self):
        for page in ("cc.3", "cc_filter.3"):
            said = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", "-ww", f"{self.prefix}/share/man/man3/{page}"],
                                  check=True, capture_output=True, text=True)
            self.assertEqual(said.stderr, "")
            self.assertIn("SECURITY", said.stdout)


if __name__ == "__main__":
    unittest.main()
