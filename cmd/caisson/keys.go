// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
)

func (a *app) keysGenerateCommand() *cobra.Command {
	var pass keys.Passphrase
	var boot bool
	c := verb("keys generate", func(_ *cobra.Command, args []string) error {
		if boot {
			info, err := keys.MakeBoot(keys.PairName(args[0]), &pass, now())
			if err != nil {
				return err
			}
			if !info.Encrypted {
				a.say("%s is not encrypted: who has the file can sign for these machines", info.Private)
			}
			return a.print(info)
		}
		key, err := sign.Generate()
		if err != nil {
			return err
		}
		return a.pair(key, args[0], &pass)
	})
	passphraseFlag(c.Flags(), &pass)
	c.Flags().BoolVar(&boot, "boot", false, "make a boot key: RSA-2048, with a certificate")
	return c
}

func (a *app) keysImportCommand() *cobra.Command {
	var pass keys.Passphrase
	c := verb("keys import", func(_ *cobra.Command, args []string) error {
		key, err := keys.Open(args[0], &pass)
		if err != nil {
			return err
		}
		return a.pair(key, args[1], &pass)
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
		info, err := keys.InfoOf(args[0], text, &pass)
		if err != nil {
			return err
		}
		return a.print(info)
	})
	passphraseFlag(c.Flags(), &pass)
	return c
}

// pair writes both halves of a key, and says what was written.
func (a *app) pair(key *ecdsa.PrivateKey, name string, pass *keys.Passphrase) error {
	info, err := keys.MakePair(key, keys.PairName(name), pass)
	if err != nil {
		return err
	}
	if !info.Encrypted {
		a.say("%s is not encrypted: with CAISSON_PASSPHRASE set 'caisson keys import %s NAME' makes a pair that is", info.Private, info.Private)
	}
	return a.print(info)
}

func (a *app) keysEnrollImageCommand() *cobra.Command {
	var k media.FirmwareKeys
	var out string
	c := verb("keys enroll-image", func(c *cobra.Command, _ []string) error {
		result, err := k.Enroll(c.Context(), out, now())
		if err != nil {
			return err
		}
		if len(k.DB) == 1 {
			a.say("db has what %s holds and no more: cards whose firmware the vendor signed are not started; keep the vendor's "+
				"by a second --db", k.DB[0])
		}
		return a.print(result)
	})
	c.Flags().StringVar(&k.PK, "pk", "", "`NAME` of the pair that becomes PK: NAME.key and NAME.crt")
	c.Flags().StringVar(&k.KEK, "kek", "", "`NAME` of the pair that becomes KEK")
	c.Flags().StringArrayVar(&k.DB, "db", nil, "`FILE` with certificates whose programs are started")
	c.Flags().StringArrayVar(&k.KEKToo, "kek-too", nil, "`FILE` with certificates of others who may change db and dbx")
	c.Flags().StringVar(&k.Manager, "systemd-boot", boot.UEFIDir+"/systemd-bootx64.efi", "`FILE` of systemd-boot 252 or newer, unsigned")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write")
	requireFlags(c, "pk", "kek", "db", "out")
	passphraseFlag(c.Flags(), &k.Passphrase)
	return c
}

func (a *app) keysRevokeLoaderCommand() *cobra.Command {
	var k media.FirmwareKeys
	var out string
	c := verb("keys revoke-loader", func(_ *cobra.Command, files []string) error {
		result, err := k.Revoke(files, out, now())
		if err != nil {
			return err
		}
		return a.print(result)
	})
	c.Flags().StringVar(&k.KEK, "kek", "", "`NAME` of the pair that is KEK")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write")
	requireFlags(c, "kek", "out")
	passphraseFlag(c.Flags(), &k.Passphrase)
	return c
}
