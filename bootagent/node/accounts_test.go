// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// people are the files of an image of accounts.
type people map[string]string

// user adds a user with a key, and returns all.
func (p people) user(name string, uid int, key string) people {
	out := maps.Clone(p)
	if out == nil {
		out = people{"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n", "etc/group": "root:x:0:\nsudo:x:27:\n", "etc/shadow": "root:*:20000::::::\n"}
	}
	out["etc/passwd"] += fmt.Sprintf("%s:x:%d:%d::/home/%s:/bin/bash\n", name, uid, uid, name)
	out["etc/group"] += fmt.Sprintf("%s:x:%d:\n", name, uid)
	out["etc/shadow"] += fmt.Sprintf("%s:*:20000::::::\n", name)
	out["etc/ssh/authorized_keys.d/"+name] = key + "\n"
	out["etc/sudoers.d/caisson-"+name] = name + " ALL=(ALL) NOPASSWD:ALL\n"
	out["home/"+name+"/.profile"] = "# profile\n"
	return out
}

// housed is a machine whose root is stacked from images of squashfs.
type housed struct {
	*machine
	blobs map[string]oci.Descriptor // of what was put into an image, by its text
	named map[string]string         // digests of layers
	descr map[string]spec.Layer
}

func newHoused(t *testing.T, first people) *housed {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mksquashfs")
	dir := t.TempDir()
	h := &housed{machine: &machine{Fleet: fixture.NewFleet(t), t: t, root: filepath.Join(dir, "root")}, blobs: map[string]oci.Descriptor{}, named: map[string]string{}, descr: map[string]spec.Layer{}}
	if err := os.Mkdir(h.root, 0o755); err != nil {
		t.Fatal(err)
	}
	layer := h.layer("first", first)
	store, err := layers.OpenStore(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	stack := layers.Stack{Mounts: filepath.Join(dir, "images"), Upper: filepath.Join(dir, "upper"), Target: h.root}
	for _, image := range h.descr["first"].Images {
		for _, d := range h.blobs {
			if d.Digest == image.Digest {
				if err := store.Put(d.Digest, d.Data); err != nil {
					t.Fatal(err)
				}
			}
		}
		stack.Images = append(stack.Images, layers.Image{Path: store.Path(image.Digest), Type: image.MediaType})
	}
	if err := stack.Mount(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"from", "to"} { // of a process that was killed
			_ = unix.Unmount(h.root+paths.RunAccounts+"/"+name, unix.MNT_DETACH)
		}
		if err := stack.Unmount(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Symlink(filepath.Join(dir, "images"), h.root+paths.RunImages); err != nil {
		t.Fatal(err)
	}
	h.publish(1, layer, "10")
	h.enrolled()
	h.boot()
	h.stage("first")
	h.apply()
	return h
}

// image is a squashfs of files, put into the registry once.
func (h *housed) image(files map[string]string) spec.Blob {
	h.t.Helper()
	text := fmt.Sprint(files)
	if _, ok := h.blobs[text]; !ok {
		dir := h.t.TempDir()
		for name, text := range files {
			at := filepath.Join(dir, "tree", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
				h.t.Fatal(err)
			}
		}
		if out, err := exec.Command("mksquashfs", dir+"/tree", dir+"/image", "-quiet", "-no-progress", "-all-time", "0", "-mkfs-time", "0").CombinedOutput(); err != nil {
			h.t.Fatalf("mksquashfs: %v\n%s", err, out)
		}
		data, err := os.ReadFile(dir + "/image")
		if err != nil {
			h.t.Fatal(err)
		}
		h.blobs[text] = oci.Describe(oci.TypeSquashfs, data)
	}
	d := h.blobs[text]
	return spec.Blob{Digest: d.Digest, Size: d.Size}
}

// layer pushes a layer with accounts, changed by hand where change is given.
func (h *housed) layer(version string, who people, change ...func(*spec.Layer)) string {
	h.t.Helper()
	base := h.image(map[string]string{"proc/sys/vm/swappiness": "60\n", "proc/self/mountinfo": "", "etc/security/limits.d/x": "", "dev/x": "", "run/caisson/x": "", "var/lib/caisson/x": "", "etc/.pwd.lock": ""})
	kernel := h.image(map[string]string{"kernel": version[:0]})
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: fixture.Name, Version: version, Arch: runtime.GOARCH,
		Images: []spec.Image{{Name: "base", MediaType: oci.TypeSquashfs, Blob: base}, {Name: spec.ImageAccounts, MediaType: oci.TypeSquashfs, Blob: h.image(who)}},
		Kernel: spec.KernelBlob{Release: "6.12", Blob: kernel}, Initrd: kernel}
	for _, c := range change {
		c(&l)
	}
	config, err := spec.Encode(l)
	if err != nil {
		h.t.Fatal(err)
	}
	put := func(d oci.Descriptor) oci.Descriptor {
		if err := h.Registry.PutData(h.t.Context(), oci.RepoLayer, d); err != nil {
			h.t.Fatal(err)
		}
		return d.Bare()
	}
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: put(oci.Describe(oci.TypeLayerConfig, config))}
	for _, d := range h.blobs {
		m.Layers = append(m.Layers, put(d))
	}
	slices.SortFunc(m.Layers, func(a, b oci.Descriptor) int { return strings.Compare(a.Digest, b.Digest) })
	digest, err := h.Registry.PutManifest(h.t.Context(), oci.RepoLayer, oci.MediaTypeManifest, oci.Encode(m))
	if err != nil {
		h.t.Fatal(err)
	}
	h.named[version], h.descr[version] = digest, l
	return digest
}

// stage does the rest of what the loader does: the layer is in the store, and described
// in the record.
func (h *housed) stage(version string) {
	h.t.Helper()
	boot, err := record.LoadBoot(h.root + paths.RunBoot)
	if err != nil {
		h.t.Fatal(err)
	}
	boot.Layer = h.descr[version]
	if err := record.SaveBoot(h.root+paths.RunBoot, boot); err != nil {
		h.t.Fatal(err)
	}
	n := h.open()
	defer n.Close() // the test is over
	if err := n.root.FetchLayer(h.t.Context(), boot.Generation.Layer); err != nil {
		h.t.Fatal(err)
	}
}

// at holds that a generation is in effect, on a layer, and who can come in.
func (h *housed) at(when string, st *spec.Status, generation uint64, version string, keys ...string) {
	h.t.Helper()
	if st.Generation != generation || st.Layer != h.named[version] || st.LayerVersion != version || st.Health != spec.HealthOK || len(st.Foreign) > 0 {
		h.t.Errorf("%s: generation %d on %s (%s), %s: %+v, foreign %q; want %d on %s", when, st.Generation, st.LayerVersion, st.Layer, st.Health, st.Drift, st.Foreign, generation, version)
	}
	h.opens(when, keys...)
}

// opens holds which keys open the machine, to users that there are.
func (h *housed) opens(when string, keys ...string) {
	h.t.Helper()
	var got []string
	names, err := filepath.Glob(h.root + paths.KeysDir + "/*")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			h.t.Fatal(err)
		}
		if h.row("passwd", filepath.Base(name)) != "" {
			got = append(got, strings.TrimSpace(string(text)))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, keys) {
		h.t.Errorf("%s: the keys %q open it, want %q", when, got, keys)
	}
}

func (h *housed) row(database, name string) string {
	text, err := os.ReadFile(h.root + "/etc/" + database)
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+":") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// A user that comes, a key that changes and a user who leaves wait for no reboot, and the
// way back leads without one.
func TestAccountsAreLive(t *testing.T) {
	ann := people(nil).user("ann", 1001, "key-a")
	h := newHoused(t, ann)
	h.at("booted", h.apply(), 1, "first", "key-a")
	add := func(name, text string) { // what a program of the node does
		f, err := os.OpenFile(h.root+name, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("/etc/passwd", "own:x:990:990::/:/bin/sh\n")

	h.publish(2, h.layer("second", ann.user("bob", 1002, "key-b")), "10")
	h.at("a user comes", h.sync(), 2, "second", "key-a", "key-b")
	h.at("a look", h.apply(), 2, "second", "key-a", "key-b")
	if st := h.sync(); st.Sync != spec.SyncCurrent || st.Activity != spec.ActivityIdle || st.Staged != "" || h.rebootReason() != "" {
		t.Errorf("%s, %s, staged %q, a reboot for %q", st.Sync, st.Activity, st.Staged, h.rebootReason())
	}
	if s := h.state(); s.Current.Generation != 2 || s.Current.Layer != h.named["second"] || s.Ahead != nil {
		t.Errorf("%+v", s)
	}
	if h.row("passwd", "own") == "" {
		t.Error("the node's own row is lost")
	}
	if data, err := os.ReadFile(h.root + "/home/bob/.profile"); err != nil || string(data) != "# profile\n" {
		t.Errorf("bob's home: %q, %v", data, err)
	}
	add("/etc/passwd", "late:x:991:991::/:/bin/sh\n")

	// With the key goes the way in, at once, and what the store has does not matter.
	h.publish(3, h.layer("third", people(nil).user("bob", 1002, "key-c")), "30")
	h.at("a user leaves, and a key is another", h.sync(), 3, "third", "key-c")
	if h.row("passwd", "ann") != "" || h.row("shadow", "ann") != "" || h.row("group", "ann") != "" {
		t.Error("ann is left")
	}
	if err := os.RemoveAll(h.root + paths.State + "/store"); err != nil {
		t.Fatal(err)
	}
	h.at("the store is lost", h.apply(), 3, "third", "key-c")

	// One generation back: nobody reboots, and the registry has no part in it.
	st, err := h.rollback()
	if err != nil {
		t.Fatal(err)
	}
	h.at("one back", st, 2, "second", "key-a", "key-b")
	h.at("and a look", h.apply(), 2, "second", "key-a", "key-b")
	h.at("and a sync", h.sync(), 2, "second", "key-a", "key-b")
	if st, err = h.pin(3); err != nil {
		t.Fatal(err)
	}
	h.at("forth", st, 3, "third", "key-c")
	h.told(func(n *Node) error { return n.Forward("") })

	// The layer that is stacked is one as any other.
	h.publish(4, h.named["first"], "10")
	h.at("the first layer again", h.sync(), 4, "first", "key-a")
	if h.row("passwd", "own") == "" || h.row("passwd", "late") == "" {
		t.Error("the node's own rows are lost")
	}
	if left, err := filepath.Glob(h.root + paths.RunAccounts + "/*/*"); err != nil || len(left) > 0 {
		t.Errorf("mounted is %q, %v", left, err)
	}
}

// Any of the layers that differ in accounts only can be gone back to, and what a boot of it
// needs stays, however many came since.
func TestAccountsBack(t *testing.T) {
	h := newHoused(t, people(nil).user("ann", 1001, "key-1"))
	versions := []string{"first", "second", "third", "fourth"}
	key := func(generation int) string { return fmt.Sprint("key-", generation) }
	for i, version := range versions[1:] {
		generation := i + 2
		h.publish(uint64(generation), h.layer(version, people(nil).user("ann", 1001, key(generation))), "10")
		h.at("a key is another", h.sync(), uint64(generation), version, key(generation))
	}
	for _, generation := range []int{1, 3, 2, 4} {
		st, err := h.pin(uint64(generation))
		if err != nil {
			t.Fatal(err)
		}
		h.at("pinned", st, uint64(generation), versions[generation-1], key(generation))
	}
	for generation := 3; generation > 0; generation-- {
		st, err := h.rollback()
		if err != nil {
			t.Fatal(err)
		}
		h.at("rolled back", st, uint64(generation), versions[generation-1], key(generation))
	}
	store, err := layers.OpenStore(h.root + paths.State + "/store")
	if err != nil {
		t.Fatal(err)
	}
	h.told(func(n *Node) error {
		s, err := n.session.Folder.Load()
		if err == nil {
			n.destination.Tidy(s)
		}
		return err
	})
	for _, version := range versions {
		at := stage.Stager{Store: store, Say: t.Logf}
		if here, err := at.Here(t.Context(), h.named[version]); err != nil || !here {
			t.Errorf("layer %s was collected: %v", version, err)
		}
	}

	// A boot of another layer ends that: what is kept is that one and the one before.
	h.told(func(n *Node) error { return n.Forward("") })
	other := h.layer("other", people(nil).user("ann", 1001, "key-5"), func(l *spec.Layer) { l.Kernel.Release = "6.13" })
	h.publish(5, other, "10")
	h.sync()
	h.entered("root2", *h.state().Staged)
	h.stage("other")
	h.apply()
	var kept []string
	for _, g := range h.state().Kept() {
		kept = append(kept, fmt.Sprint(g.Generation))
	}
	if got := strings.Join(kept, " "); got != "5 1" {
		t.Errorf("it keeps generations %s", got)
	}
}

// Whatever is not only accounts waits for a reboot, as it did, and so do accounts that the
// running root cannot take; what is live of the rest does not wait.
func TestAccountsThatWait(t *testing.T) {
	ann := people(nil).user("ann", 1001, "key-a")
	bob := ann.user("bob", 1002, "key-b")
	for what, c := range map[string]struct {
		change func(*spec.Layer)
		made   func(h *housed) error
		why    string
	}{
		"another package": {func(l *spec.Layer) { l.Packages = []spec.InstalledPackage{{Name: "vim"}} }, nil, "another layer"},
		"another base":    {func(l *spec.Layer) { l.Images[0].Digest = l.Initrd.Digest }, nil, "another layer"},
		"another initrd":  {func(l *spec.Layer) { l.Initrd = l.Images[0].Blob }, nil, "another layer"},
		"another agent":   {func(l *spec.Layer) { l.Features = []string{"other"} }, nil, "another layer"},
		"a row of the node": {nil, func(h *housed) error {
			return os.WriteFile(h.root+"/etc/passwd", []byte(ann["etc/passwd"]+"bob:x:4000:4000::/:/bin/sh\n"), 0o644)
		}, "/etc/passwd:bob cannot be changed on the running root: this node has a row of its own"},
		"a link": {nil, func(h *housed) error {
			return errors.Join(os.RemoveAll(h.root+paths.KeysDir), os.Symlink("/tmp", h.root+paths.KeysDir))
		}, "is not a directory"},
		"a root whose images are not mounted any more": {nil, func(h *housed) error { return os.Remove(h.root + paths.RunImages) }, "nothing can be compared with them"},
	} {
		h := newHoused(t, ann)
		var change []func(*spec.Layer)
		if c.change != nil {
			change = append(change, c.change)
		}
		if c.made != nil {
			if err := c.made(h); err != nil {
				t.Fatal(err)
			}
		}
		h.publishAhead(2, spec.Core{Layer: h.layer("second", bob, change...)}, "20", -1)
		for range 2 {
			if st := h.sync(); st.Generation != 1 || st.Staged == "" || st.Health != spec.HealthOK || h.row("group", "bob") != "" || !strings.Contains(st.SyncDetail, c.why) || h.swappiness("") != "10" {
				t.Errorf("%s: generation %d, staged %q, %s: %s, swappiness %s", what, st.Generation, st.Staged, st.Health, st.SyncDetail, h.swappiness(""))
			}
		}
		reboot := c.why
		if c.change != nil {
			reboot = "its layer is not staged" // which a service does
		}
		if why := h.rebootReason(); !strings.Contains(why, reboot) || strings.Contains(why, "live: ") {
			t.Errorf("%s: a reboot is asked for by %q", what, why)
		}
	}
}

// A file of a user who comes with the same generation is made in the same pass, after the user.
func TestAccountsThatOthersNeed(t *testing.T) {
	ann := people(nil).user("ann", 1001, "key-a")
	h := newHoused(t, ann)
	h.publishItems(2, h.layer("second", ann.user("bob", 1002, "key-b")), spec.Items{
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}}, Files: []spec.File{{Path: "/etc/bob.conf", Owner: "bob"}}})
	for range 2 {
		st := h.sync()
		if st.Generation != 2 || st.Staged != "" || st.Health != spec.HealthOK || h.rebootReason() != "" || h.swappiness("") != "20" {
			t.Errorf("generation %d, staged %q, %s: %s, a reboot for %q", st.Generation, st.Staged, st.Sync, st.SyncDetail, h.rebootReason())
		}
		h.opens("it is in effect", "key-a", "key-b")
	}
	var file unix.Stat_t
	if err := unix.Stat(h.root+"/etc/bob.conf", &file); err != nil || file.Uid != 1002 {
		t.Errorf("bob's file is of %d: %v", file.Uid, err)
	}
}

// A gate that does not pass takes users back as everything else, without a reboot.
func TestAccountsThatDoNotPass(t *testing.T) {
	ann := people(nil).user("ann", 1001, "key-a")
	h := newHoused(t, ann)
	h.publishGated(2, spec.Core{Layer: h.layer("second", people(nil).user("bob", 1002, "key-b"))}, "20", 0)
	h.at("judged", h.sync(), 2, "second", "key-b")
	st, reboots := h.judge(5)
	if st == nil || reboots != 0 {
		t.Fatalf("%+v, %d reboots", st, reboots)
	}
	h.opens("taken back", "key-a")
	if st := h.apply(); st.Generation != 1 || st.Layer != h.named["first"] || st.LayerVersion != "first" {
		t.Errorf("taken back: %d on %s", st.Generation, st.LayerVersion)
	}
	if st := h.sync(); st.Generation != 1 || h.swappiness("") != "10" {
		t.Errorf("it is tried again: %d", st.Generation)
	}
	h.opens("after another look", "key-a")
}

// A node does live what the plan calls live, whatever differs between two layers.
func TestTheClassOfALayerIsWhatTheNodeDoes(t *testing.T) {
	ann := people(nil).user("ann", 1001, "key-a")
	h := newHoused(t, ann)
	parts := []func(*spec.Layer){
		func(l *spec.Layer) { l.Images[0].Digest = l.Initrd.Digest },
		func(l *spec.Layer) { l.Packages = append(l.Packages, spec.InstalledPackage{Name: "vim"}) },
		func(l *spec.Layer) { l.Initrd = l.Images[0].Blob },
		func(l *spec.Layer) { l.Features = []string{"other"} },
		func(l *spec.Layer) { l.AppArmor.Features = "other" },
		func(l *spec.Layer) { l.Kernel.Release = "6.13" },
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	for i := range 12 {
		version, at := fmt.Sprint("v", i), uint64(i+2)
		digest := h.layer(version, ann.user("bob", 1002, fmt.Sprint("key-", i)), func(l *spec.Layer) {
			for _, part := range parts {
				if random.IntN(2*len(parts)) == 0 {
					part(l)
				}
			}
		})
		first, to := h.descr["first"], h.descr[version]
		class, why := spec.LayerMove(&first, &to)
		h.publish(at, digest, "10")
		if st := h.sync(); (st.Generation == at) != spec.Live(class) || (st.Layer == digest) != spec.Live(class) {
			t.Fatalf("seed %d: the plan says %s: %s; the node runs %d on %s, %s", seed, class, why, st.Generation, st.LayerVersion, st.SyncDetail)
		}
	}
}

// An agent that is killed at any of its steps leaves a root that the next one makes whole.
func TestAccountsThatAreKilled(t *testing.T) {
	if place := os.Getenv(victim + "_ACCOUNTS"); place != "" {
		at, root, _ := strings.Cut(place, "|")
		var left int64
		if _, err := fmt.Sscan(at, &left); err != nil {
			t.Fatal(err)
		}
		ctx := steps{t.Context(), new(atomic.Int64)}
		ctx.left.Store(left)
		n, err := Open(t.Context(), traced(session.Options{Root: root, Say: func(string, ...any) { ctx.step() }}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.cycle.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Parallel()
	ann := people(nil).user("ann", 1001, "key-a")
	whole := func(h *housed, when string, st *spec.Status) {
		t.Helper()
		stays, comes, version, keys := "ann", "bob", "first", "key-a"
		if st.Generation == 2 {
			stays, comes, version, keys = "bob", "ann", "second", "key-b"
		}
		h.at(when, st, st.Generation, version, keys)
		for _, database := range []string{"passwd", "group", "shadow"} {
			if h.row(database, stays) == "" || h.row(database, comes) != "" {
				t.Errorf("%s: generation %d, and %s has %q and %q", when, st.Generation, database, h.row(database, stays), h.row(database, comes))
			}
		}
	}
	seen := map[uint64]bool{}
	for at := 1; ; at += 1 + rand.IntN(4) {
		h := newHoused(t, ann)
		h.publish(2, h.layer("second", people(nil).user("bob", 1002, "key-b")), "20")
		child := exec.Command(os.Args[0], "-test.run=^TestAccountsThatAreKilled$", "-test.count=1")
		child.Env = append(os.Environ(), fmt.Sprintf("%s_ACCOUNTS=%d|%s", victim, at, h.root))
		out, err := child.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !(errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL) {
			t.Fatalf("%v\n%s", err, out)
		}
		st := h.apply()
		whole(h, fmt.Sprint("killed at ", at), st)
		seen[st.Generation] = true
		if st = h.sync(); st.Generation != 2 {
			t.Errorf("killed at %d, and then synced: generation %d", at, st.Generation)
		}
		whole(h, fmt.Sprint("killed at ", at, ", and then synced"), st)
		if err == nil { // it survived
			break
		}
	}
	if !seen[1] || !seen[2] {
		t.Errorf("after the kills ran only %v", seen)
	}
}
