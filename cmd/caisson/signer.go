// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/keys"
)

// signers are the flags that say who signs.
type signers struct {
	keys     []string
	commands []string
}

const signerHelp = `Keys: --key FILE is cosign's encrypted PEM, PKCS#8 or SEC 1, ECDSA P-256. The
passphrase comes from CAISSON_PASSPHRASE or COSIGN_PASSWORD, or is asked for on a
terminal. --signer-command CMD keeps a key in hardware or a KMS: "CMD public"
prints the public key as PEM; "CMD sign" reads a SHA-256 digest in hex and
prints the ASN.1 ECDSA signature in base64. CMD is split at blanks and run
without a shell.`

func (s *signers) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.keys, "key", nil, "sign with the private key in `FILE`; several for a threshold")
	f.StringArrayVar(&s.commands, "signer-command", nil, "sign with the program `CMD`, for keys in hardware or a KMS")
}

// load returns the signers, at least one.
func (s *signers) load() ([]crypto.Signer, error) {
	var out []crypto.Signer
	for _, name := range s.keys {
		key, err := keys.Open(name)
		if err != nil {
			return nil, err
		}
		out = append(out, key)
	}
	for _, command := range s.commands {
		signer, err := keys.Program(command)
		if err != nil {
			return nil, err
		}
		out = append(out, signer)
	}
	if len(out) == 0 {
		return nil, cli.Usage("caisson keys generate makes keys", "no key to sign with: give --key or --signer-command")
	}
	return out, nil
}
