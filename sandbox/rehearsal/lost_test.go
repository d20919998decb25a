// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/test/sshd"
)

func TestMain(m *testing.M) {
	sshd.Main()
	os.Exit(m.Run())
}

// opened is a machine that answers by a script, and what it runs.
func opened(t *testing.T, answers string) (box *sandbox.Box, dir string) {
	t.Helper()
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: f}\nregistry: registry.example/f\n" +
		"layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\nnodes: [{name: a}]\n")}}, "site.yaml")
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	dir, cache := sshd.Use(t, answers), t.TempDir()
	bake := func(_ context.Context, recipe spec.Recipe, variant, _ string, o builder.Options) (*builder.Result, error) {
		made, err := spec.Encode(recipe)
		r := &builder.Result{Recipe: made, Ledger: o.Ledger, Layer: spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Features: spec.Features(), Fleet: recipe.Fleet, Variant: variant,
			Arch: "amd64", Created: "2026-01-01T00:00:00Z", Recipe: oci.Digest(made)}}
		file := func(name, mediaType string) spec.Blob {
			b := spec.Blob{Digest: oci.Digest([]byte(name)), Size: int64(len(name))}
			r.Blobs = append(r.Blobs, builder.Blob{Blob: b, MediaType: mediaType, Path: filepath.Join(cache, name), Title: name})
			err = errors.Join(err, os.WriteFile(filepath.Join(cache, name), []byte(name), 0o600))
			return b
		}
		r.Layer.Images = []spec.Image{{Name: "base", MediaType: mediatype.Squashfs, Blob: file("base", mediatype.Squashfs)}}
		r.Layer.Kernel, r.Layer.Initrd = spec.KernelBlob{Release: "6.12", Blob: file("kernel", mediatype.Kernel)}, file("initrd", mediatype.Initrd)
		return r, err
	}
	box, err := sandbox.Open(t.Context(), s, "a", sandbox.Options{Dir: t.TempDir(), Now: time.Now().UTC().Truncate(time.Second), Console: io.Discard,
		Build: release.Build{Options: builder.Options{CacheDir: cache}, Make: bake}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() }) // the machine goes with the test
	return box, dir
}

// A node that starts over where nothing has it do that has failed, which is stated. Who interrupts is given no answer.
func TestLost(t *testing.T) {
	const healthy = `case "$1" in "caisson-agent status"*) echo '{"health": "ok", "generation": 1}';; esac` + "\n"
	for name, test := range map[string]struct{ answers, reason string }{
		"picture":     {healthy + `case "$1" in *caisson-picture*) exit 255;; esac`, "the connection to the machine is lost"},
		"goes off":    {healthy + `case "$1" in *caisson-picture*) kill $PPID; exec sleep 1000;; esac`, "the connection to the machine is lost"},
		"interrupted": {`case "$1" in *status*) touch here; exec sleep 1000;; esac` + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			box, dir := opened(t, test.answers)
			ctx, cut := context.WithCancel(t.Context())
			defer cut()
			go func() {
				for ctx.Err() == nil {
					if _, err := os.Stat(filepath.Join(dir, "here")); err == nil {
						cut()
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			o, _, _ := box.Published()
			a, err := Walk(ctx, box, Options{Node: "a", From: &sandbox.Kept{Overlay: o}, Within: time.Hour, Say: func(string) {}})
			switch {
			case test.reason == "" && (!errors.Is(err, context.Canceled) || a.Reason != ""):
				t.Errorf("%+v, %v", a, err)
			case test.reason != "" && (err != nil || !errors.Is(a.Err(), cli.ErrFailed) || !strings.Contains(a.Reason, test.reason)):
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}
