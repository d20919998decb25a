// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
)

// keyInfo is the output of keys … -o json.
type keyInfo struct {
	ID        string `json:"id"`                  // base64 of the SHA-256 of the public key, as in signatures
	Private   string `json:"private,omitempty"`   // file
	Public    string `json:"public,omitempty"`    // file
	Encrypted bool   `json:"encrypted,omitempty"` // a passphrase that is not empty opens it
	PEM       string `json:"pem"`                 // the public key
}

func (a *app) keysCommand() *cobra.Command {
	return group("keys", a.keysGenerateCommand(), a.keysImportCommand(), a.keysShowCommand(),
		a.keysPlanCommand(), a.keysRehearseCommand(), a.keysRotateCommand(), a.keysRevokeCommand(), a.keysPullCommand(),
		a.keysEnrollImageCommand(), a.keysRevokeLoaderCommand())
}

func (a *app) keysGenerateCommand() *cobra.Command {
	var pass keys.Passphrase
	var boot bool
	c := verb("keys generate", func(_ *cobra.Command, args []string) error {
		if boot {
			return a.generateBoot(args[0], &pass)
		}
		key, err := sign.Generate()
		if err != nil {
			return err
		}
		return a.writePair(key, args[0], &pass)
	})
	passphraseFlag(c.Flags(), &pass)
	c.Flags().BoolVar(&boot, "boot", false, "make a boot key: RSA-2048, with a certificate")
	return c
}

// generateBoot writes a boot key and its certificate, whose text is the public half here.
func (a *app) generateBoot(name string, pass *keys.Passphrase) error {
	name = pairName(name)
	private, public := name+".key", name+".crt"
	secret, err := keys.GenerateBoot(name, pass, now())
	if err != nil {
		return err
	}
	text, err := os.ReadFile(public)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	boot, err := keys.ReadBoot(private, public, pass)
	if err != nil {
		return err
	}
	if !secret {
		a.say("%s is not encrypted: who has the file can sign for these machines", private)
	}
	sum := sha256.Sum256(boot.Certificate().RawSubjectPublicKeyInfo)
	return a.printKey(keyInfo{ID: base64.StdEncoding.EncodeToString(sum[:]), Private: private, Public: public,
		Encrypted: secret, PEM: string(text)})
}

// pairName is the name of a pair, of which that of either half is one.
func pairName(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".key"), ".pub"), ".crt")
}

func (a *app) keysImportCommand() *cobra.Command {
	var pass keys.Passphrase
	c := verb("keys import", func(_ *cobra.Command, args []string) error {
		key, err := keys.Open(args[0], &pass)
		if err != nil {
			return err
		}
		return a.writePair(key, args[1], &pass)
	})
	passphraseFlag(c.Flags(), &pass)
	return c
}

func (a *app) keysShowCommand() *cobra.Command {
	var pass keys.Passphrase
	c := verb("keys show", func(_ *cobra.Command, args []string) error {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return fmt.Errorf("read key: %w", err)
		}
		if c, err := chain.Parse(text); err == nil {
			return a.printChain(c)
		}
		info := keyInfo{Public: args[0]}
		var pub sign.Verifier
		if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
			key, err := keys.Open(args[0], &pass)
			if err != nil {
				return err
			}
			pub, info = sign.VerifierOf(key), keyInfo{Private: args[0], Encrypted: encrypted(text)}
		} else if pub, err = sign.ParsePublic(text); err != nil {
			return cli.WithHint(fmt.Errorf("read key %s: %w", args[0], err),
				"it takes a public or a private key, or caisson.keys, which has the keys of a site")
		}
		info.ID, info.PEM = pub.ID(), string(pub.PEM())
		return a.printKey(info)
	})
	passphraseFlag(c.Flags(), &pass)
	return c
}

// writePair writes both halves and says what was written.
func (a *app) writePair(key *ecdsa.PrivateKey, name string, pass *keys.Passphrase) (err error) {
	name = pairName(name)
	pub := sign.VerifierOf(key)
	info := keyInfo{ID: pub.ID(), Private: name + ".key", Public: name + ".pub", PEM: string(pub.PEM())}
	if info.Encrypted, err = keys.WritePair(key, name, pass); err != nil {
		return err
	}
	if !info.Encrypted {
		a.say("%s is not encrypted: with CAISSON_PASSPHRASE set 'caisson keys import %s NAME' makes a pair that is", info.Private, info.Private)
	}
	return a.printKey(info)
}

func (a *app) printKey(info keyInfo) error {
	return a.show(info, func() { fmt.Fprintf(a.out, "id %s\n%s", info.ID, info.PEM) })
}

// encrypted says whether more than the empty passphrase is needed.
func encrypted(text []byte) bool {
	if !keys.IsEncrypted(text) {
		return false
	}
	_, err := keys.Parse(text, nil)
	return errors.Is(err, keys.ErrPassphrase)
}
