// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/keys"
)

// enrolled is the output of keys enroll-image -o json.
type enrolled struct {
	File string   `json:"file"`
	PK   string   `json:"pk"`  // name in the certificate
	KEK  []string `json:"kek"` // likewise; a list of signatures is named by its file
	DB   []string `json:"db"`
}

// revokedLoaders is the output of keys revoke-loader -o json.
type revokedLoaders struct {
	File    string   `json:"file"`
	Loaders []string `json:"loaders"` // what firmware calls them: hexadecimal SHA-256
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
	if err := writable("--out", f.out); err != nil {
		return err
	}
	manager, err := os.ReadFile(f.manager)
	if err != nil {
		return cli.WithHint(fmt.Errorf("--systemd-boot: %w", err), "Debian's package systemd-boot-efi has it")
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
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("%s: %w", flag, err), "'caisson keys generate --boot "+name+"' makes both halves")
	}
	return b, nil
}

// signatureLists reads what goes into a variable, and how people know it.
func signatureLists(flag string, files []string) (lists []byte, names []string, err error) {
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", flag, err)
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
	c := verb("keys revoke-loader", func(_ *cobra.Command, files []string) error {
		return a.revokeLoader(files, kek, out, &pass)
	})
	c.Flags().StringVar(&kek, "kek", "", "`NAME` of the pair that is KEK")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write")
	requireFlags(c, "kek", "out")
	passphraseFlag(c.Flags(), &pass)
	return c
}

func (a *app) revokeLoader(files []string, kek, out string, pass *keys.Passphrase) error {
	if err := writable("--out", out); err != nil {
		return err
	}
	pair, err := a.firmwarePair("--kek", kek, pass)
	if err != nil {
		return err
	}
	result := revokedLoaders{File: out}
	var sums [][]byte
	for _, name := range files {
		program, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		sum, err := cms.ImageDigest(program)
		if err != nil {
			return cli.Usage("'caisson image --out FILE.efi' writes a loader alone", "%s: %v", name, err)
		}
		sums, result.Loaders = append(sums, sum), append(result.Loaders, hex.EncodeToString(sum))
	}
	key, err := pair.Open()
	if err != nil {
		return err
	}
	update, err := efivar.Forbidden.Append(key, pair.Certificate(), now(), efivar.Digests(sums))
	if err != nil {
		return err
	}
	if err := durable.WriteFile(out, update, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return a.show(result, func() { cli.Printf(a.out, "%s\t%s\n", out, strings.Join(result.Loaders, "\n\t")) })
}
