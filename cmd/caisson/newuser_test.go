// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// TestNewUser follows the README with a site of its own and a registry that has TLS
// and a login, and then does every everyday job of docs/runbook.md. Its layers are
// those that bake makes: everything but the archive, the kernel and squashfs is
// real.
func TestNewUser(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	newUser(t, "bake")
}

// TestNewUserLong is TestNewUser with layers that are built: real apt, a real root
// tree, a real kernel.
func TestNewUserLong(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "apt-get")
	newUser(t, "caisson build --fast --cache "+t.TempDir()+" --agent "+agentBinary(t))
}

// agentBinary builds the static agent that layers take.
func agentBinary(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "caisson-agent")
	cmd := exec.Command("go", "build", "-o", name, "../caisson-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return name
}

var digestText = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

func newUser(t *testing.T, build string) {
	addr, ca := registrytest.Private(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/newuser",
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"fits": fits,
			// digest VARIABLE reads the first digest that was printed.
			"digest": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], digestText.FindString(ts.ReadFile("stdout")))
			}},
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			for name, value := range map[string]string{"REGISTRY": addr, "CA": ca, "HOME": home, "BUILD": build} {
				e.Setenv(name, value)
			}
			return errors.Join(os.Mkdir(home, 0o700), os.WriteFile(filepath.Join(e.WorkDir, "password"), []byte(registrytest.Password+"\n"), 0o600))
		},
	})
}

// bake is a program that stands for "caisson build": it takes the same flags, and
// pushes layers of the site's recipes in which nothing was installed.
func bake() {
	f := flag.NewFlagSet("bake", flag.ContinueOnError)
	to, key, ca, named := f.String("to", "", ""), f.String("key", "", ""), f.String("ca", "", ""), f.String("version", "", "")
	err := f.Parse(os.Args[2:])
	if err == nil {
		err = pushBaked(os.Args[1], *to, *key, *ca, *named)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bake:", err)
		os.Exit(1)
	}
}

func pushBaked(file, to, key, ca, named string) error {
	s, found := parseSite(time.Now(), file)
	if found.Err() != nil {
		return found.Err()
	}
	reach := access{say: func(string, ...any) {}}
	if ca != "" {
		reach.caFiles = []string{ca}
	}
	reg, err := reach.open(to)
	if err != nil {
		return err
	}
	var by crypto.Signer
	if by, err = keys.Open(key, nil); err != nil {
		return err
	}
	var before release.Before
	switch set, err := release.Find(context.Background(), reg, release.Current); {
	case err == nil:
		before.Layers = set.Layers
		if before.Ledger, err = set.Accounts(context.Background(), s.Name(), nil); err != nil {
			return err
		}
	case !errors.Is(err, oci.ErrNotFound):
		return err
	}
	built, err := release.Bake(context.Background(), s, release.Build{Before: before, Make: baked})
	if err != nil {
		return err
	}
	p := release.Pusher{Registry: reg, Release: by, Now: now()}
	out, err := p.PushAll(context.Background(), s.Name(), named, built)
	if err != nil {
		return err
	}
	for _, l := range out.Layers {
		fmt.Println(l.Digest, l.Variant)
	}
	return nil
}

// baked is a layer of a recipe whose files hold no more than their names.
func baked(_ context.Context, recipe spec.Recipe, variant, _ string, o builder.Options) (*builder.Result, error) {
	made, err := spec.Encode(recipe)
	if err != nil {
		return nil, err
	}
	r := &builder.Result{Recipe: made, Layer: spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: recipe.Fleet, Variant: variant, Arch: "amd64",
		Created: "2026-01-01T00:00:00Z", Recipe: oci.Digest(made)}}
	file := func(name, mediaType, text string) (spec.Blob, error) {
		path := filepath.Join(os.TempDir(), oci.Digest([]byte(text))[7:])
		b := spec.Blob{Digest: oci.Digest([]byte(text)), Size: int64(len(text))}
		r.Blobs = append(r.Blobs, builder.Blob{Blob: b, MediaType: mediaType, Path: path, Title: name})
		return b, os.WriteFile(path, []byte(text), 0o644)
	}
	others := recipe
	others.Accounts = spec.Accounts{}
	rest, err := spec.Encode(others)
	if err != nil {
		return nil, err
	}
	present := accounts.Present(recipe.Accounts, o.Ledger)
	img, err1 := file("base", image.MediaType, "the image of "+string(rest))
	people, err4 := file(spec.ImageAccounts, image.MediaType, fmt.Sprint("the accounts of ", present, recipe.Accounts))
	kernel, err2 := file("kernel", mediatype.Kernel, "a kernel")
	initrd, err3 := file("initrd", mediatype.Initrd, "an initrd")
	r.Layer.Images = []spec.Image{{Name: "base", MediaType: image.MediaType, Blob: img}, {Name: spec.ImageAccounts, MediaType: image.MediaType, Blob: people}}
	r.Layer.Kernel, r.Layer.Initrd = spec.KernelBlob{Release: "6.12.1+deb13-amd64", Blob: kernel}, initrd
	for _, p := range recipe.Packages.Install {
		r.Layer.Packages = append(r.Layer.Packages, spec.InstalledPackage{Name: p.Name, Version: "1.0", Arch: "amd64"})
	}
	r.Layer.Accounts, r.Ledger = present, o.Ledger
	return r, errors.Join(err1, err2, err3, err4)
}
