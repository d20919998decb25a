// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/sshd"
)

// helper has the process of a test boot a node and wait to be killed, see
// TestKilled.
const helper = "CAISSON_SANDBOX_HELPER"

func TestMain(m *testing.M) {
	sshd.Main()
	if dir := os.Getenv(helper); dir != "" {
		box, err := Open(context.Background(), newSite(), "a", options(dir))
		if err == nil {
			err = box.Start(context.Background())
		}
		fmt.Println("started:", err)
		select {}
	}
	os.Exit(m.Run())
}

// newSite has no key files: none are opened. edits are pairs of texts.
func newSite(edits ...string) *site.Site {
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(strings.NewReplacer(edits...).Replace(`apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal}
registry: registry.example/metal
layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64, args: [quiet]}}
nodes: [{name: a, match: {macs: ["52:54:00:00:00:0a"]}}, {name: b}]
machine: {agent: {report: {url: "https://fleet.example"}}}
conf:
  sysctl: {vm.swappiness: 10}
  overrides: {divingbell_apt: {hosts: [{name: b, conf: {apt: {packages: [{name: jq}]}}}]}}
`))}}, "site.yaml")
	if err := found.Err(); err != nil {
		panic(err)
	}
	return s
}

// options build layers whose files hold a few words.
func options(dir string) Options {
	return Options{Dir: filepath.Join(dir, "try"), Now: time.Now().UTC().Truncate(time.Second), Console: os.Stderr,
		Build: release.Build{Options: builder.Options{CacheDir: dir}, Make: baked(dir)}}
}

func baked(dir string) func(context.Context, spec.Recipe, string, string, builder.Options) (*builder.Result, error) {
	return func(_ context.Context, recipe spec.Recipe, variant, _ string, o builder.Options) (*builder.Result, error) {
		made, err := spec.Encode(recipe)
		if err != nil {
			return nil, err
		}
		r := &builder.Result{Recipe: made, Ledger: o.Ledger, Layer: spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Features: spec.Features(), Fleet: recipe.Fleet, Variant: variant,
			Arch: "amd64", Created: "2026-01-01T00:00:00Z", Recipe: oci.Digest(made)}}
		file := func(name, mediaType, text string) spec.Blob {
			path := filepath.Join(dir, "blob-"+name)
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
			b := spec.Blob{Digest: oci.Digest([]byte(text)), Size: int64(len(text))}
			r.Blobs = append(r.Blobs, builder.Blob{Blob: b, MediaType: mediaType, Path: path, Title: name})
			return b
		}
		r.Layer.Images = []spec.Image{{Name: "base", MediaType: image.MediaType, Blob: file("base", image.MediaType, "an image")}}
		r.Layer.Kernel = spec.KernelBlob{Release: "6.12.1+deb13-amd64", Blob: file("kernel", mediatype.Kernel, "a kernel")}
		r.Layer.Initrd = file("initrd", mediatype.Initrd, "an initrd")
		return r, err
	}
}

// emulate puts a script in the place of QEMU, which KVM runs at once, and returns the
// directory in which it leaves its process id.
func emulate(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script = "#!/bin/sh\ncase \"$*\" in *isa-debug-exit*) exit 33;; *panic=-1) exit 0;; esac\necho $$ >" + dir + "/pid; echo \"$*\" >" + dir + "/arguments\n" + script
	for name, text := range map[string]string{"qemu-system-x86_64": script, "busybox": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// left is what a sandbox has left: files, and its machine.
func left(t *testing.T, dir, emulator string) (out []string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, "try"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range files {
		out = append(out, f.Name())
	}
	text, err := os.ReadFile(filepath.Join(emulator, "pid"))
	if errors.Is(err, os.ErrNotExist) || len(text) == 0 { // it was ended before it had written that
		return out
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !strings.Contains(string(stat), ") Z ") { // of which only the exit code is left
		out = append(out, "process "+strconv.Itoa(pid))
	}
	return out
}

// The overlay is the one that would be published, byte for byte; the layer is that of the
// node alone; and the loader trusts keys that no file holds, and tells nobody.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	emulator := emulate(t, "exec sleep 1000")
	s := newSite()
	box, err := Open(t.Context(), s, "a", options(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	want, err := s.Digest("a", box.Layer(), box.layer.Variant)
	if err != nil || box.overlay != want {
		t.Errorf("overlay %s, a publish makes %s: %v", box.overlay, want, err)
	}
	layers, err := release.Open(t.Context(), box.registry, release.Current)
	if err != nil || len(layers) != 1 || layers[0].Digest != box.Layer() {
		t.Errorf("%d layers were built, %v", len(layers), err)
	}
	trusted, err := os.ReadFile(box.dir.File("boot/site.cpio"))
	if text := string(trusted); err != nil || !strings.Contains(text, "10.0.2.100:5000/metal") || strings.Contains(text, "fleet.example") || strings.Contains(text, "registry.example") {
		t.Errorf("site.cpio, %v:\n%s", err, text)
	}
	if err := box.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, filepath.Join(emulator, "arguments"))
	arguments, err := os.ReadFile(filepath.Join(emulator, "arguments"))
	if !strings.Contains(string(arguments), "io.systemd.credential.binary:systemd.unit-dropin.dev-ttyS0.device=") {
		t.Errorf("systemd gives up on the console's device: %s", arguments)
	}
	if err != nil || !strings.Contains(string(arguments), "-append BOOTIF=01-52-54-00-00-00-0a quiet panic=30 console=ttyS0\n") {
		t.Errorf("%v: %s", err, arguments)
	}
	if err := box.Close(); err != nil {
		t.Error(err)
	}
	if got := left(t, dir, emulator); got != nil {
		t.Errorf("left behind: %q", got)
	}
}

// What a registry keeps for a node is booted with the bytes that were published, whatever the
// site says now; then the site is offered, and the way back is what was kept.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	emulate(t, "exec sleep 1000")
	before, err := Open(t.Context(), newSite(), "a", options(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	o := options(dir)
	o.Kept = &Kept{Overlay: before.want, Layer: before.layer, From: before.registry}
	box, err := Open(t.Context(), newSite("vm.swappiness: 10", "vm.swappiness: 20", "[quiet]", "[debug]"), "a", o)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if !slices.Equal(box.line, before.line) || !slices.Contains(box.line, "quiet") {
		t.Errorf("the first kernel is started with %q, and was published with %q", box.line, before.line)
	}
	if box.overlay != before.overlay || box.Layer() != before.Layer() || box.generation != 1 {
		t.Errorf("generation %d, overlay %s of layer %s, want %s of %s", box.generation, box.overlay, box.Layer(), before.overlay, before.Layer())
	}
	if err := box.Offer(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if box.overlay == before.overlay || box.generation != 2 || box.want.Items.Sysctl[0].Value != "20" {
		t.Errorf("after the offer: generation %d, overlay %s, %+v", box.generation, box.overlay, box.want.Items.Sysctl)
	}
	if err := box.GoBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if box.overlay != before.overlay || box.generation != 3 {
		t.Errorf("after the way back: generation %d, overlay %s, want %s", box.generation, box.overlay, before.overlay)
	}
}

// The loader of what is kept is as the node has it: the site may want disks made by now, with programs that the
// kept layer lacks, and may give the node another address.
func TestTheLoaderOfWhatIsKept(t *testing.T) {
	dir := t.TempDir()
	emulate(t, "exec sleep 1000")
	before, err := Open(t.Context(), newSite(), "a", options(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	overlay := *before.want
	overlay.Network.Interfaces = []spec.Interface{{Name: "lan", MAC: "52:54:00:00:00:0a", Addresses: []string{"10.1.0.5/24"}}}
	o := options(dir)
	o.Kept = &Kept{Overlay: &overlay, Layer: before.layer, From: before.registry}
	box, err := Open(t.Context(), newSite("args: [quiet]}", "args: [quiet]}, stateDisk: {create: true, boot: true}"), "a", o)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	told, err := os.ReadFile(box.dir.File("boot/site.cpio"))
	if text := string(told); err != nil || !strings.Contains(text, "10.1.0.5/24") || strings.Contains(text, "newStateDisk") || strings.Contains(text, "bootFromDisk") {
		t.Errorf("site.cpio, %v:\n%s", err, text)
	}
	// So may the site have another bootNetwork by now.
	edited := newSite("nodes:", "bootNetwork: [{match: {macs: [\"52:54:00:00:00:0a\"]}, vlan: 9, dhcp: ipv4}]\nnodes:")
	for vlan, rows := range map[int64][]spec.BootNetwork{9: nil, 0: {}, 7: {{Match: spec.BootMatch{MACs: []string{"52:54:00:00:00:0a"}}, VLAN: 7, DHCP: spec.DHCPv4}}} {
		o.Kept = &Kept{Overlay: before.want, Layer: before.layer, From: before.registry, Boot: rows}
		box, err := Open(t.Context(), edited, "a", o)
		if err != nil {
			t.Fatal(err)
		}
		defer box.Close()
		if got := box.plug.Rows; vlan == 0 && len(got) > 0 || vlan > 0 && (len(got) != 1 || got[0].VLAN != vlan) {
			t.Errorf("rows of VLAN %d: %+v", vlan, got)
		}
	}
}

// A layer of images that others have is made in the sandbox, and is what the node is given.
func TestStacked(t *testing.T) {
	dir := t.TempDir()
	emulate(t, "exec sleep 1000")
	before, err := Open(t.Context(), newSite(), "a", options(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	l := before.layer
	l.Version = "stacked"
	config, err := spec.Encode(l.Layer)
	if err != nil {
		t.Fatal(err)
	}
	m := *l.Manifest
	m.Config = oci.Describe(oci.TypeLayerConfig, config).Bare()
	manifest := oci.Encode(m)
	l.Digest = oci.Digest(manifest)
	overlay := *before.want
	overlay.Layer = l.Digest
	o := options(dir)
	o.Kept = &Kept{Overlay: &overlay, Layer: l, From: before.registry, Stacked: &Stacked{Of: []release.Layer{before.layer}, Config: config, Manifest: manifest}}
	box, err := Open(t.Context(), newSite(), "a", o)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if box.Layer() != l.Digest || box.layer.Version != "stacked" {
		t.Errorf("the node is given layer %s, version %s, want %s", box.Layer(), box.layer.Version, l.Digest)
	}
}

func wait(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(file); err == nil && info.Size() > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %s", file)
		}
	}
}

// Whenever it is interrupted, nothing is left.
func TestInterrupted(t *testing.T) {
	for _, moment := range []string{"before", "build", "built", "first", "started", "booting"} {
		t.Run(moment, func(t *testing.T) {
			dir, ctx := t.TempDir(), t.Context()
			emulator := emulate(t, "echo booting; exec sleep 1000")
			ctx, cut := context.WithCancel(ctx)
			defer cut()
			o := options(dir)
			at := func(here string) {
				if here == moment {
					cut()
				}
			}
			o.Build.Make = func(ctx context.Context, recipe spec.Recipe, variant, version string, b builder.Options) (*builder.Result, error) {
				at("build")
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				defer at("built")
				return baked(dir)(ctx, recipe, variant, version, b)
			}
			o.First = func(context.Context, *registry.Registry) error { at("first"); return ctx.Err() }
			at("before")
			box, err := Open(ctx, newSite(), "a", o)
			if err == nil {
				if err = box.Start(ctx); err == nil {
					at("started")
					go func() {
						_, _ = box.machine.Console.Wait(ctx, 0, "booting") // it is cut, too, when it ends without
						at("booting")
					}()
					err = box.LogIn(ctx)
				}
				err = errors.Join(err, box.Close())
			}
			if err == nil {
				t.Error("it is done all the same")
			}
			if got := left(t, dir, emulator); got != nil {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

// Of a process that was killed the machine is gone with it, and the next one removes its
// files, and not those of one that lives.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	emulator := emulate(t, "exec sleep 1000")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, filepath.Join(emulator, "pid"))
	second, err := newScratch(t.Context(), filepath.Join(dir, "try"))
	if err != nil {
		t.Fatal(err)
	}
	if got := left(t, dir, emulator); len(got) != 3 {
		t.Errorf("beside one that lives: %q", got)
	}
	if err := errors.Join(cmd.Process.Kill(), second.Remove()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for end := time.Now().Add(time.Minute); len(left(t, dir, emulator)) > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the machine outlives it: %q", left(t, dir, emulator))
		}
	}
	third, err := newScratch(t.Context(), filepath.Join(dir, "try"))
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Remove(); err != nil {
		t.Error(err)
	}
	if got := left(t, dir, emulator); got != nil {
		t.Errorf("left behind: %q", got)
	}
}

// A node that does not come up says why on its console.
func TestDown(t *testing.T) {
	const rule = "------------------------------------------------------------------------"
	for name, test := range map[string]struct{ script, want string }{
		"refused":  {"echo " + rule + "; echo 'THIS NODE DOES NOT COME UP: it is refused'; echo '  do      nothing'; echo " + rule + "; exec sleep 1000", "THIS NODE DOES NOT COME UP: it is refused\n  do      nothing"},
		"went off": {"echo 'reboot: Power down'", "reboot: Power down"},
	} {
		t.Run(name, func(t *testing.T) {
			emulate(t, test.script)
			box, err := Open(t.Context(), newSite(), "a", options(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close()
			if err := box.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			var down *DownError
			if err := box.LogIn(t.Context()); !errors.As(err, &down) || strings.Join(down.Lines, "\n") != test.want {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// Where the site has nodes make their state disk, there is an empty one that they may take.
func TestEmptyDisk(t *testing.T) {
	require.Slow(t)
	for create, want := range map[string]string{
		"create: true":                    "format=raw,if=virtio",
		"create: true, disks: [S3EVNX0K]": "-device virtio-blk-pci,drive=state,serial=S3EVNX0K",
	} {
		emulator := emulate(t, "exec sleep 1000")
		for _, tool := range []string{"sgdisk", "mkfs.ext4"} {
			if err := os.WriteFile(filepath.Join(emulator, tool), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		o := options(t.TempDir())
		o.Disk, o.diskSize = true, 1<<20
		box, err := Open(t.Context(), newSite("layer: {", "layer: {stateDisk: {"+create+"}, "), "a", o)
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait(t, filepath.Join(emulator, "arguments"))
		arguments, err := os.ReadFile(filepath.Join(emulator, "arguments"))
		if err != nil || !strings.Contains(string(arguments), want) {
			t.Errorf("%s: %v: no %q in %s", create, err, want, arguments)
		}
		info, err := os.Stat(box.dir.File("state.raw"))
		if err != nil || info.Size() < 1<<20 {
			t.Errorf("%s: %v, %v", create, info, err)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(t.Context(), newSite(), "aa", options(dir)); err == nil || err.Error() != `the site has no node "aa"` {
		t.Errorf("a node that is not there: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Open(t.Context(), newSite(), "a", options(dir)); err == nil || err.Error() != "no program qemu-system-x86_64" {
		t.Errorf("without QEMU: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "try")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
}
