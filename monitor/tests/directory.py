# SPDX-License-Identifier: BSD-3-Clause
"""A directory (OpenLDAP's slapd, Debian: slapd) with a few people and groups, which takes STARTTLS only."""
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

NEEDED = ["slapd", "slapadd", "openssl"]
PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
PASSWORDS = {name: f"the word of {name}" for name in ("lea", "tom", "nia", "guy")}
CONFIGURATION = """include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile {folder}/ca.pem
TLSCertificateFile {folder}/server.pem
TLSCertificateKeyFile {folder}/server.key
security tls=1
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,dc=site" read by anonymous auth by * none
database mdb
maxsize 10485760
suffix dc=site
directory {folder}/data
"""
ENTRIES = """dn: dc=site
objectClass: dcObject
objectClass: organization
o: site

dn: cn=reader,dc=site
objectClass: organizationalRole
objectClass: simpleSecurityObject
userPassword: the reader's

dn: ou=people,dc=site
objectClass: organizationalUnit

dn: ou=groups,dc=site
objectClass: organizationalUnit
"""
PERSON = """
dn: uid={name},ou=people,dc=site
objectClass: inetOrgPerson
cn: {name}
sn: {name}
userPassword: {password}
employeeType: {kind}
"""
GROUP = """
dn: cn={name},ou=groups,dc=site
objectClass: groupOfNames
member: uid={member},ou=people,dc=site
"""

class Directory:
    """A directory that runs until it is closed. `section` is its section in the monitor's configuration. `env` is what the
    monitor needs to trust it."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="outboard-directory-"))
        self.env = {"SSL_CERT_FILE": str(self.folder / "ca.pem")}
        self.certificates()
        (self.folder / "data").mkdir()
        (self.folder / "slapd.conf").write_text(CONFIGURATION.format(folder=self.folder))
        (self.folder / "reader").write_text("the reader's\n")
        people = [PERSON.format(name=name, password=password, kind="guest" if name == "guy" else "staff") for name, password in PASSWORDS.items()]
        groups = [GROUP.format(name="CFD", member="tom"), GROUP.format(name="admins", member="lea")]
        self.call("slapadd", "-f", self.folder / "slapd.conf", text=ENTRIES + "".join(people + groups))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"ldap://localhost:{free.getsockname()[1]}"
        self.section = (f'[ldap]\nurl = "{self.url}"\nstarttls = true\npeople = "ou=people,dc=site"\nfilter = "(employeeType=staff)"\n'
                        f'groups = "ou=groups,dc=site"\nbind_dn = "cn=reader,dc=site"\nbind_password_file = "{self.folder}/reader"\n'
                        '[[ldap.role]]\ngroup = "cn=admins, ou=groups, dc=site"\nrole = "admin"\n'
                        '[[ldap.role]]\ngroup = "cn=cfd,ou=groups,dc=site"\nrole = "manager"\nproject = ["cfd"]\n')
        self.start()

    def call(self, *words, text=""):
        done = subprocess.run(words, input=text, env={"PATH": PATH}, text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]}: {done.stdout}{done.stderr}")

    def certificates(self):
        """The certificate of an authority, and that of the server, which the authority has signed."""
        at = lambda name: str(self.folder / name)
        self.call("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority", "-keyout", at("ca.key"), "-out", at("ca.pem"))
        self.call("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", at("server.key"), "-out", at("server.csr"))
        (self.folder / "names").write_text("subjectAltName=DNS:localhost\n")
        self.call("openssl", "x509", "-req", "-in", at("server.csr"), "-CA", at("ca.pem"), "-CAkey", at("ca.key"), "-CAcreateserial", "-days", "2",
                  "-extfile", at("names"), "-out", at("server.pem"))

    def start(self):
        self.log = open(self.folder / "slapd.log", "w")
        self.process = subprocess.Popen(["slapd", "-f", self.folder / "slapd.conf", "-h", self.url, "-d", "0"], env={"PATH": PATH},
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, cwd=self.folder)
        end, port = time.monotonic() + 60, int(self.url.rsplit(":", 1)[1])
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("slapd did not start:\n" + (self.folder / "slapd.log").read_text())

    def change(self, text):
        """Changes entries while the server is down."""
        self.call("slapmodify", "-f", self.folder / "slapd.conf", text=text)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def close(self):
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
