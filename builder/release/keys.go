// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
)

// KeyFiles name the private keys of a build, one for each role, as [keys.Signer] reads
// them. Each may be empty.
type KeyFiles struct {
	Release    string
	Attest     string
	Boot       string // of RSA-2048
	Passphrase keys.Passphrase
}

// Beside takes, where no key is named, those that lie beside the site's public ones
// and are the only ones of their role. It returns what it took.
func (f *KeyFiles) Beside(s *site.Site) (took []string) {
	for _, role := range []struct {
		name   *string
		public []string
	}{{&f.Release, s.Trust().Release}, {&f.Attest, s.Trust().Attestation}} {
		if found := keys.Beside(role.public); *role.name == "" && len(found) == 1 {
			*role.name = found[0]
			took = append(took, found[0])
		}
	}
	return took
}

// BootCertificate is the public half of the boot key beside a site.
func BootCertificate(s *site.Site) string { return filepath.Join(s.Dir(), "keys", "boot.crt") }

// BootBeside takes the boot key that lies beside a site's certificate, where there is one, and
// reports whether it did.
func (f *KeyFiles) BootBeside(s *site.Site) bool {
	found := keys.Beside([]string{BootCertificate(s)})
	if len(found) > 0 {
		f.Boot = found[0]
	}
	return len(found) > 0
}

// BootKey reads the certificate of the boot key, nil where none is named: FILE.crt beside
// FILE.key, else that beside the site.
func (f *KeyFiles) BootKey(s *site.Site) (builder.BootKey, error) {
	if f.Boot == "" {
		return nil, nil
	}
	certificate := BootCertificate(s)
	if name, is := strings.CutSuffix(f.Boot, ".key"); is {
		certificate = name + ".crt"
	}
	key, err := keys.ReadBoot(f.Boot, certificate, &f.Passphrase)
	if err != nil {
		return nil, cli.Absent(fmt.Errorf("--boot-key: %w", err),
			"'caisson keys generate --boot keys/boot' makes both; the certificate of a key elsewhere is keys/boot.crt beside the site")
	}
	return key, nil
}

// Check finds before a build the refusals that would follow it, as far as that can
// be known without the keys themselves: they stay closed until the last script of
// a package has ended. Key generation leaves the public half beside. A warning
// that is not empty says that the build goes on and publish refuses its layers.
func (f *KeyFiles) Check(s *site.Site) (warning string, err error) {
	for _, name := range []string{f.Release, f.Attest} {
		if name == "" {
			continue
		}
		if err := keys.Check(name); err != nil {
			return "", err
		}
	}
	if f.Release != "" && f.Release == f.Attest {
		return "", errSameKey
	}
	if f.Release == "" {
		named, err := namedKeys(s)
		if err != nil || len(named) == 0 {
			return "", err
		}
		return "without --key the layers are not signed, and publish refuses them", nil
	}
	public, err := keys.PublicOf(f.Release)
	if err != nil || public == nil {
		return "", nil // then the key itself decides, after the build
	}
	return "", checkNamed(s, public)
}

// Open opens the keys, of which those that are not named are nil, and refuses
// what Check could not know.
func (f *KeyFiles) Open(s *site.Site) (release, attest crypto.Signer, err error) {
	release, released, err := f.open(f.Release)
	if err != nil {
		return nil, nil, err
	}
	if released != nil {
		if err := checkNamed(s, released); err != nil {
			return nil, nil, err
		}
	}
	attest, attested, err := f.open(f.Attest)
	if err != nil {
		return nil, nil, err
	}
	if released != nil && attested != nil && released.ID() == attested.ID() {
		return nil, nil, errSameKey
	}
	return release, attest, nil
}

// open opens one key, none where it is not named.
func (f *KeyFiles) open(source string) (crypto.Signer, sign.Verifier, error) {
	if source == "" {
		return nil, nil, nil
	}
	key, err := keys.Signer(source, &f.Passphrase)
	if err != nil {
		return nil, nil, err
	}
	public, err := sign.NewVerifier(key.Public())
	return key, public, err
}

// namedKeys returns the release keys that a site names. Without their files there
// is nothing to compare with.
func namedKeys(s *site.Site) ([]sign.Verifier, error) {
	named, err := keys.Publics(s.Trust().Release)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return named, err
}

// checkNamed refuses a key that publish would refuse: one that the site does not
// name.
func checkNamed(s *site.Site, key sign.Verifier) error {
	named, err := namedKeys(s)
	if err != nil || len(named) == 0 || slices.ContainsFunc(named, func(k sign.Verifier) bool { return k.ID() == key.ID() }) {
		return err
	}
	return cli.Usage("publish accepts layers by the keys in trust.keys.release of the site", "--key is not a release key of the site")
}

var errSameKey = cli.Usage("use two keys: cosign would accept any attestation as a release", "--key and --attest-key are the same key")
