// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci/keys"
)

// FirmwareKeys name the files of keys that firmware is to know, as 'caisson keys' has them.
type FirmwareKeys struct {
	PK, KEK    string   // names of the pairs that become these variables: NAME.key and NAME.crt
	DB, KEKToo []string // files with certificates: whose programs are started, and who else may change db and dbx
	Manager    string   // file of systemd-boot 252 or newer, unsigned
	Passphrase keys.Passphrase
}

// Enrolled is the output of keys enroll-image -o json.
type Enrolled struct {
	File string   `json:"file"`
	PK   string   `json:"pk"`  // name in the certificate
	KEK  []string `json:"kek"` // likewise; a list of signatures is named by its file
	DB   []string `json:"db"`
}

// Write prints for people what firmware will know.
func (e *Enrolled) Write(w io.Writer) {
	cli.Printf(w, "%s\tPK %s\tKEK %s\tdb %s\n", e.File, e.PK, strings.Join(e.KEK, ", "), strings.Join(e.DB, ", "))
}

// RevokedLoaders is the output of keys revoke-loader -o json.
type RevokedLoaders struct {
	File         string   `json:"file"`
	Loaders      []string `json:"loaders"`                // what firmware calls them: hexadecimal SHA-256
	Certificates []string `json:"certificates,omitempty"` // names in them, of all whose programs are kept out
}

// Write prints for people what firmware will refuse.
func (r *RevokedLoaders) Write(w io.Writer) {
	cli.Printf(w, "%s\t%s\n", r.File, strings.Join(append(r.Loaders, r.Certificates...), ", "))
}

// Enroll writes a medium that puts keys into firmware which has none.
func (k *FirmwareKeys) Enroll(ctx context.Context, out string, now time.Time) (*Enrolled, error) {
	if !strings.HasSuffix(out, ".iso") {
		return nil, cli.Usage("name a file that ends with .iso", "--out %s: the medium is a CD and a USB stick", out)
	}
	if err := cli.Writable("--out", out); err != nil {
		return nil, err
	}
	manager, err := os.ReadFile(k.Manager)
	if err == nil {
		_, err = cms.ImageDigest(manager)
	}
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("--systemd-boot %s: %w", k.Manager, err), "Debian's package systemd-boot-efi has it")
	}
	pk, err := k.pair("--pk", k.PK)
	if err != nil {
		return nil, err
	}
	kek, err := k.pair("--kek", k.KEK)
	if err != nil {
		return nil, err
	}
	allowed, names, err := signatureLists("--db", k.DB)
	if err != nil {
		return nil, err
	}
	exchange, more, err := signatureLists("--kek-too", k.KEKToo)
	if err != nil {
		return nil, err
	}
	result := &Enrolled{File: out, PK: pk.Certificate().Subject.CommonName, DB: names,
		KEK: append([]string{kek.Certificate().Subject.CommonName}, more...)}
	exchange = append(efivar.Certificate(kek.Certificate()), exchange...)
	e := Enrollment{Manager: manager, Date: now, Updates: map[efivar.Variable][]byte{}}
	for _, u := range []struct {
		variable efivar.Variable
		by       *keys.Boot
		lists    []byte
	}{{efivar.Platform, pk, efivar.Certificate(pk.Certificate())}, {efivar.Exchange, pk, exchange}, {efivar.Allowed, kek, allowed}} {
		key, err := u.by.Open()
		if err != nil {
			return nil, err
		}
		if e.Updates[u.variable], err = u.variable.Replace(key, u.by.Certificate(), now, u.lists); err != nil {
			return nil, err
		}
	}
	return result, e.Write(ctx, out)
}

// pair reads the certificate of a pair that 'keys generate --boot' made.
func (k *FirmwareKeys) pair(flag, name string) (*keys.Boot, error) {
	name = keys.PairName(name)
	b, err := keys.ReadBoot(name+".key", name+".crt", &k.Passphrase)
	if err != nil && strings.Contains(name, ":") { // command:, env: or fd:, as for other keys, or a URI
		return nil, cli.Usage("it takes NAME of the two files NAME.key and NAME.crt, no program, variable or URI",
			"%s %s: not the name of two files", flag, name)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", flag, err)
	}
	if secret, is := errors.AsType[*ownfiles.SecretError](err); is {
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

// Revoke writes an update by which firmware refuses loaders, and what certificates have signed.
func (k *FirmwareKeys) Revoke(files []string, out string, now time.Time) (*RevokedLoaders, error) {
	if err := cli.Writable("--out", out); err != nil {
		return nil, err
	}
	pair, err := k.pair("--kek", k.KEK)
	if err != nil {
		return nil, err
	}
	result := &RevokedLoaders{File: out, Loaders: []string{}}
	var lists []byte
	for _, name := range files {
		program, err := os.ReadFile(name)
		if err != nil {
			return nil, cli.Absent(err, "it takes files of loaders, as FILE.efi, and of certificates, as keys/old.crt")
		}
		if sum, err := cms.ImageDigest(program); err == nil {
			lists, result.Loaders = append(lists, efivar.Digests([][]byte{sum})...), append(result.Loaders, hex.EncodeToString(sum))
			continue
		}
		list, signers, err := efivar.Read(program)
		if err != nil || len(signers) == 0 {
			return nil, cli.Usage("'caisson image --out FILE.efi' writes a loader alone; a certificate is in PEM or DER",
				"%s: neither a program for firmware nor a certificate", name)
		}
		lists, result.Certificates = append(lists, list...), append(result.Certificates, signers...)
	}
	key, err := pair.Open()
	if err != nil {
		return nil, err
	}
	update, err := efivar.Forbidden.Append(key, pair.Certificate(), now, lists)
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(out, update, 0o644); err != nil {
		return nil, fmt.Errorf("write %s: %w", out, err)
	}
	return result, nil
}
