// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongFilledVariables: firmware takes the keys that are written into its flash image: it starts a program
// by each of the two in its db, as while a boot key is changed, and the same one by another or unsigned it does not.
func TestLongFilledVariables(t *testing.T) {
	require.Long(t)
	needs(t)
	dir := t.TempDir()
	bare, err := os.ReadFile("/usr/lib/systemd/boot/efi/systemd-bootx64.efi")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	type program struct {
		image []byte
		want  string
	}
	programs := map[string]program{"bare": {bare, "Access Denied"}}
	var db, list []byte
	for _, name := range []string{"old", "new", "other"} {
		boot := newBootPair(t, filepath.Join(dir, name))
		key, err := boot.Open()
		if err != nil {
			t.Fatal(err)
		}
		signed, err := cms.SignImage(bare, key, boot.Certificate())
		if err != nil {
			t.Fatal(err)
		}
		if name == "other" {
			programs[name] = program{signed, "Access Denied"}
			continue
		}
		list = efivar.Certificate(boot.Certificate())
		db, programs[name] = append(db, list...), program{signed, "BdsDxe: starting"}
	}
	fresh, err := machine.Variables("amd64")
	if err != nil {
		t.Fatal(err)
	}
	image, err := efivar.Fill(fresh, map[efivar.Variable][]byte{efivar.Platform: list, efivar.Exchange: list, efivar.Allowed: db})
	if err != nil {
		t.Fatal(err)
	}
	f := &Fleet{Dir: dir, Show: t.Output()}
	for name, c := range programs {
		o := machine.Options{Name: name, NoCard: true, Secure: true, UEFI: filepath.Join(dir, name+".vars"), CD: filepath.Join(dir, name+".iso"), Memory: 256}
		if err := os.WriteFile(o.UEFI, image, 0o600); err != nil {
			t.Fatal(err)
		}
		e := media.Enrollment{Manager: c.image, Date: time.Now(), Updates: map[efivar.Variable][]byte{}}
		if err := e.Write(t.Context(), o.CD); err != nil {
			t.Fatal(err)
		}
		m := f.start(t, o)
		if got := waitFor(t, m, 0, "Access Denied", "BdsDxe: starting"); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
		m.PowerCut()
	}
}

func newBootPair(t *testing.T, pair string) *keys.Boot {
	t.Helper()
	if _, err := keys.GenerateBoot(pair, &keys.Passphrase{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	boot, err := keys.ReadBoot(pair+".key", pair+".crt", &keys.Passphrase{})
	if err != nil {
		t.Fatal(err)
	}
	return boot
}
