// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"reflect"
	"strings"
	"testing"
)

// TestLayerBytes: agents of other releases read the description of a layer and
// compare it byte for byte, so every key keeps its name and its place.
func TestLayerBytes(t *testing.T) {
	var l Layer
	want := strings.Join([]string{
		`{"apiVersion":"caisson.dev/v1alpha1","kind":"Layer","fleet":"f","version":"1","variant":"default","recipe":"sha256:r","arch":"amd64","created":"2026-01-02T03:04:05Z"`,
		`"images":[{"name":"base","mediaType":"m","digest":"sha256:i","size":1,"chunks":{"digest":"sha256:c","size":2}},{"name":"agent","mediaType":"m","digest":"sha256:a","size":3}]`,
		`"kernel":{"release":"6.12","digest":"sha256:k","size":4}`,
		`"initrd":{"digest":"sha256:n","size":5}`,
		`"uefi":{"stub":{"digest":"sha256:s","size":6},"manager":{"digest":"sha256:m","size":7}}`,
		`"packages":[{"name":"p","version":"1","arch":"all","sha256":"d"}]`,
		`"accounts":[{"name":"u","uid":1000,"gid":100,"state":"active"}]`,
		`"apparmor":{"features":"x","profiles":[{"name":"q","mode":"enforce","file":"/q"}]}`,
		`"features":["files"]`,
		`"roots":{"sha256:i":"00ff"}`,
		`"fast":true}`,
	}, ",")
	if err := Decode([]byte(want), &l); err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeOf(l).NumField() {
		if f := reflect.ValueOf(l).Field(i); f.IsZero() {
			t.Errorf("%s is not in the example", reflect.TypeOf(l).Field(i).Name)
		}
	}
	if l.Images[0].Digest != "sha256:i" || l.Images[0].Size != 1 || l.Images[0].Chunks.Digest != "sha256:c" || l.Kernel.Digest != "sha256:k" || l.Kernel.Size != 4 {
		t.Errorf("digests or sizes are not in their fields: %+v", l)
	}
	if got, err := Encode(l); err != nil || string(got) != want {
		t.Errorf("encoded:\n%s\nwant\n%s\n(%v)", got, want, err)
	}
}

func TestKernelLine(t *testing.T) {
	for args, want := range map[string]string{
		"":                     "panic=30",
		"quiet mem=48M":        "quiet mem=48M panic=30",
		"panic=0 quiet":        "panic=0 quiet",
		"panic=-1":             "panic=-1",
		"panic_on_oops=1":      "panic_on_oops=1 panic=30",
		"oops=panic panic=300": "oops=panic panic=300",
	} {
		if got := strings.Join(KernelLine(strings.Fields(args)), " "); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}
