// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/ownfiles"
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
			info, err := keys.MakeBoot(pairName(args[0]), &pass, now())
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
	info, err := keys.MakePair(key, pairName(name), pass)
	if err != nil {
		return err
	}
	if !info.Encrypted {
		a.say("%s is not encrypted: with CAISSON_PASSPHRASE set 'caisson keys import %s NAME' makes a pair that is", info.Private, info.Private)
	}
	return a.print(info)
}

// enrolled is the output of keys enroll-image -o json.
type enrolled struct {
	File string   `json:"file"`
	PK   string   `json:"pk"`  // name in the certificate
	KEK  []string `json:"kek"` // likewise; a list of signatures is named by its file
	DB   []string `json:"db"`
}

// revokedLoaders is the output of keys revoke-loader -o json.
type revokedLoaders struct {
	File         string   `json:"file"`
	Loaders      []string `json:"loaders"`                // what firmware calls them: hexadecimal SHA-256
	Certificates []string `json:"certificates,omitempty"` // names in them, of all whose programs are kept out
}

// enrollFlags are the flags of keys enroll-image.
type enrollFlags struct {
	pk, kek, out, manager string
	db, kekToo            []string
	pass                  keys.Passphrase
}

func (a *app) keysEnrollImageCommand() *cobra.Command {
	var f enrollFlags
	c := verb("keys enroll-image", func(c *cobra.Command, _ []string) error { return a.enrollImage(c.Context(), f) })
	c.Flags().StringVar(&f.pk, "pk", "", "`NAME` of the pair that becomes PK: NAME.key and NAME.crt")
	c.Flags().StringVar(&f.kek, "kek", "", "`NAME` of the pair that becomes KEK")
	c.Flags().StringArrayVar(&f.db, "db", nil, "`FILE` with certificates whose programs are started")
	c.Flags().StringArrayVar(&f.kekToo, "kek-too", nil, "`FILE` with certificates of others who may change db and dbx")
	c.Flags().StringVar(&f.manager, "systemd-boot", boot.UEFIDir+"/systemd-bootx64.efi", "`FILE` of systemd-boot 252 or newer, unsigned")
	c.Flags().StringVar(&f.out, "out", "", "`FILE` to write")
	requireFlags(c, "pk", "kek", "db", "out")
	passphraseFlag(c.Flags(), &f.pass)
	return c
}

func (a *app) enrollImage(ctx context.Context, f enrollFlags) error {
	if !strings.HasSuffix(f.out, ".iso") {
		return cli.Usage("name a file that ends with .iso", "--out %s: the medium is a CD and a USB stick", f.out)
	}
	if err := cli.Writable("--out", f.out); err != nil {
		return err
	}
	manager, err := os.ReadFile(f.manager)
	if err == nil {
		_, err = cms.ImageDigest(manager)
	}
	if err != nil {
		return cli.WithHint(fmt.Errorf("--systemd-boot %s: %w", f.manager, err), "Debian's package systemd-boot-efi has it")
	}
	pk, err := a.firmwarePair("--pk", f.pk, &f.pass)
	if err != nil {
		return err
	}
	kek, err := a.firmwarePair("--kek", f.kek, &f.pass)
	if err != nil {
		return err
	}
	result := enrolled{File: f.out, PK: pk.Certificate().Subject.CommonName, KEK: []string{kek.Certificate().Subject.CommonName}}
	allowed, names, err := signatureLists("--db", f.db)
	if err != nil {
		return err
	}
	exchange, more, err := signatureLists("--kek-too", f.kekToo)
	if err != nil {
		return err
	}
	result.DB, result.KEK = names, append(result.KEK, more...)
	exchange = append(efivar.Certificate(kek.Certificate()), exchange...)
	e := media.Enrollment{Manager: manager, Date: now(), Updates: map[efivar.Variable][]byte{}}
	for _, u := range []struct {
		variable efivar.Variable
		by       *keys.Boot
		lists    []byte
	}{{efivar.Platform, pk, efivar.Certificate(pk.Certificate())}, {efivar.Exchange, pk, exchange}, {efivar.Allowed, kek, allowed}} {
		key, err := u.by.Open()
		if err != nil {
			return err
		}
		if e.Updates[u.variable], err = u.variable.Replace(key, u.by.Certificate(), now(), u.lists); err != nil {
			return err
		}
	}
	if err := e.Write(ctx, f.out); err != nil {
		return err
	}
	if len(f.db) == 1 {
		a.say("db has what %s holds and no more: cards whose firmware the vendor signed are not started; keep the vendor's "+
			"by a second --db", f.db[0])
	}
	return a.show(result, func() {
		cli.Printf(a.out, "%s\tPK %s\tKEK %s\tdb %s\n", f.out, result.PK, strings.Join(result.KEK, ", "), strings.Join(result.DB, ", "))
	})
}

// firmwarePair reads the certificate of a pair that 'keys generate --boot' made.
func (a *app) firmwarePair(flag, name string, pass *keys.Passphrase) (*keys.Boot, error) {
	name = pairName(name)
	b, err := keys.ReadBoot(name+".key", name+".crt", pass)
	if err != nil && strings.Contains(name, ":") { // command:, env: or fd:, as for other keys, or a URI
		return nil, cli.Usage("it takes NAME of the two files NAME.key and NAME.crt, no program, variable or URI",
			"%s %s: not the name of two files", flag, name)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", flag, err)
	}
	var secret *ownfiles.SecretError
	if errors.As(err, &secret) {
		err = cli.WithHint(err, secret.Hint()) // without variables and descriptors, see above
	}
	return b, cli.Absent(err, "it takes NAME of the two files NAME.key and NAME.crt, which 'caisson keys generate --boot NAME' makes")
}

// signatureLists reads what goes into a variable, and how people know it.
func signatureLists(flag string, files []string) (lists []byte, names []string, err error) {
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, cli.Absent(fmt.Errorf("%s: %w", flag, err), "it takes files with certificates, as keys/boot.crt")
		}
		read, of, err := efivar.Read(data)
		if err != nil {
			return nil, nil, cli.Usage("it takes certificates in PEM or DER, and signature lists of firmware", "%s %s: %v", flag, name, err)
		}
		if lists = append(lists, read...); len(of) == 0 {
			of = []string{name}
		}
		names = append(names, of...)
	}
	return lists, names, nil
}

func (a *app) keysRevokeLoaderCommand() *cobra.Command {
	var kek, out string
	var pass keys.Passphrase
	c := verb("keys revoke-loader", func(_ *cobra.Command, files []string) error { return a.revokeLoader(files, kek, out, &pass) })
	c.Flags().StringVar(&kek, "kek", "", "`NAME` of the pair that is KEK")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write")
	requireFlags(c, "kek", "out")
	passphraseFlag(c.Flags(), &pass)
	return c
}

func (a *app) revokeLoader(files []string, kek, out string, pass *keys.Passphrase) error {
	if err := cli.Writable("--out", out); err != nil {
		return err
	}
	pair, err := a.firmwarePair("--kek", kek, pass)
	if err != nil {
		return err
	}
	result := revokedLoaders{File: out, Loaders: []string{}}
	var lists []byte
	for _, name := range files {
		program, err := os.ReadFile(name)
		if err != nil {
			return cli.Absent(err, "it takes files of loaders, as FILE.efi, and of certificates, as keys/old.crt")
		}
		if sum, err := cms.ImageDigest(program); err == nil {
			lists, result.Loaders = append(lists, efivar.Digests([][]byte{sum})...), append(result.Loaders, hex.EncodeToString(sum))
			continue
		}
		list, signers, err := efivar.Read(program)
		if err != nil || len(signers) == 0 {
			return cli.Usage("'caisson image --out FILE.efi' writes a loader alone; a certificate is in PEM or DER",
				"%s: neither a program for firmware nor a certificate", name)
		}
		lists, result.Certificates = append(lists, list...), append(result.Certificates, signers...)
	}
	key, err := pair.Open()
	if err != nil {
		return err
	}
	update, err := efivar.Forbidden.Append(key, pair.Certificate(), now(), lists)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(out, update, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return a.show(result, func() {
		cli.Printf(a.out, "%s\t%s\n", out, strings.Join(append(result.Loaders, result.Certificates...), ", "))
	})
}
