// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/keys"
)

// signers are the flags that say who signs.
type signers struct {
	keys       []string
	commands   []string
	passphrase keys.Passphrase
	dry        bool
}

const signerHelp = `Keys: --key FILE is cosign's encrypted PEM, PKCS#8 or SEC 1, ECDSA P-256. Without
--key, the private keys are taken that lie beside the site's public ones. The
passphrase comes from --passphrase-from, CAISSON_PASSPHRASE or COSIGN_PASSWORD, or is asked
for on a terminal. ` + keys.SourceHelp + `
` + keys.CommandHelp + `
--signer-command CMD is --key command:CMD.`

func (s *signers) flags(f *pflag.FlagSet) {
	s.keyFlags(f)
	dryFlag(f, &s.dry)
}

// keyFlags are those of a verb that signs in any case.
func (s *signers) keyFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.keys, "key", nil, "sign with the private key in `FILE`, env:NAME, fd:N or command:CMD; several for a threshold")
	passphraseFlag(f, &s.passphrase)
	f.StringArrayVar(&s.commands, "signer-command", nil, "sign with the program `CMD`, for keys in hardware or a KMS: --key command:CMD")
}

// dryFlag adds a look at what a verb would do.
func dryFlag(f *pflag.FlagSet, dry *bool) {
	f.BoolVarP(dry, "dry-run", "n", false, "say what would be done, node by node, and write nothing; it takes no key")
}

// passphraseFlag adds where the passphrase of encrypted keys comes from.
func passphraseFlag(f *pflag.FlagSet, p *keys.Passphrase) {
	f.StringVar(&p.Source, "passphrase-from", "", "read the passphrase of encrypted keys from `SOURCE`: a file, env:NAME or fd:N")
}

// load returns the signers, at least one. Where none is named, those beside the
// site's public keys sign. A dry run takes those that are named, as whom to trust.
func (s *signers) load(a *app, public []string) ([]crypto.Signer, error) {
	if s.dry && len(s.keys)+len(s.commands) == 0 {
		return nil, nil
	}
	if len(s.keys)+len(s.commands) == 0 {
		if s.keys = keys.Beside(public); len(s.keys) > 0 {
			a.say("signing with %s", strings.Join(s.keys, ", "))
		}
	}
	sources := slices.Clone(s.keys)
	for _, command := range s.commands {
		sources = append(sources, keys.Command(command))
	}
	if len(sources) == 0 {
		return nil, cli.Usage("caisson keys generate makes keys", "no key to sign with: give --key or --signer-command")
	}
	return keys.Signers(sources, &s.passphrase)
}
