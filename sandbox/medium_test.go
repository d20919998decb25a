// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"os"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/require"
)

// The road is what was asked for, and what the layer and the site make of it.
func TestRoad(t *testing.T) {
	for _, c := range []struct {
		o        Options
		programs bool // for UEFI, in the layer
		edits    []string
		want     string
	}{
		{Options{}, true, nil, "kernel"},
		{Options{ISO: true}, true, nil, "cd"},
		{Options{ISO: true, Disk: true}, true, nil, "cd"},
		{Options{Disk: true}, true, nil, "disk"},
		{Options{Secure: true}, true, nil, "cd"},
		{Options{Secure: true, Disk: true}, true, nil, "disk"},
		{Options{Secure: true, Disk: true}, false, nil, "cd"}, // which says that it is not there
		{Options{Secure: true, Disk: true}, true, []string{"args: [quiet]}", "args: [quiet]}, stateDisk: {create: true}"}, "cd"},
		{Options{Disk: true}, false, nil, "kernel"},
		{Options{Disk: true}, true, []string{"args: [quiet]}", "args: [quiet]}, stateDisk: {create: true}"}, "kernel"},
		{Options{Disk: true, Kept: &Kept{}}, true, []string{"args: [quiet]}", "args: [quiet]}, stateDisk: {create: true}"}, "disk"},
	} {
		b := &Box{site: newSite(c.edits...), o: c.o}
		if c.programs {
			b.layer.UEFI = &spec.UEFI{}
		}
		if got := b.Road(); got != c.want {
			t.Errorf("%+v, programs %v: by %s, want %s", c.o, c.programs, got, c.want)
		}
	}
}

// bootKey is a key that only its certificate is asked of.
type bootKey struct{ certificate *x509.Certificate }

func (k bootKey) Certificate() *x509.Certificate { return k.certificate }
func (k bootKey) Open() (crypto.Signer, error)   { return nil, os.ErrPermission }

// TestEnroll: firmware that verifies knows the boot key, as who may change that, too, and no other.
func TestEnroll(t *testing.T) {
	fresh, err := machine.Variables("amd64")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	_, certificate := certified.Key(t, "boot")
	b := &Box{site: newSite(), guest: guest{arch: "amd64"}, dir: &scratch{Name: t.TempDir()}, o: Options{Secure: true}}
	b.o.Build.Options.Boot = bootKey{certificate}
	var o machine.Options
	if err := b.fromMedium(&o); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(o.UEFI)
	if err != nil || !o.Secure || len(got) != len(fresh) || bytes.Count(got, certificate.Raw) != 3 {
		t.Errorf("%d bytes of %d, the certificate %d times, %+v, %v", len(got), len(fresh), bytes.Count(got, certificate.Raw), o, err)
	}
	if snakeoil := []byte("Snake Oil"); bytes.Contains(got, snakeoil) {
		t.Error("a key for tests is enrolled")
	}
}
