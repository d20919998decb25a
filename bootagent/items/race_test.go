// SPDX-License-Identifier: Apache-2.0

package items

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// raced is a kind that acts in a directory of a user, who changes it meanwhile.
type raced struct {
	way   string   // the directory, below the root; so is the one above it
	name  string   // where the kind acts in it
	was   []string // what may stand there before
	gives bool     // a rule gives the user what stands there, whosever it is
	want  func(a *arena) (spec.Items, Options)
}

// races are the kinds that act by paths where a user may be at home.
var races = map[string]raced{
	"files": {"etc/app", "conf", []string{"", "root", "user", "link"}, false, func(*arena) (spec.Items, Options) {
		return spec.Items{Files: []spec.File{{Path: "/etc/app/conf", Content: "site\n", Mode: "0640"}, {Path: "/etc/app/new/deep", Content: "site\n"}}}, Options{}
	}},
	"modules": {"etc/modprobe.d", "60-caisson-modules.conf", []string{"", "root"}, false, func(*arena) (spec.Items, Options) {
		return spec.Items{Modules: &spec.Modules{Blacklist: []string{"pcspkr"}}}, Options{}
	}},
	"limits": {"etc/security/limits.d", "60-caisson-core.conf", []string{"", "root", "user"}, false, func(*arena) (spec.Items, Options) {
		return spec.Items{Limits: []spec.Limit{{ID: "core", Domain: "root", Type: "hard", Item: "core", Value: "0"}}}, Options{}
	}},
	"units": {"etc/systemd/system/x.service.d", "own.conf", []string{"", "root", "user"}, false, func(*arena) (spec.Items, Options) {
		return spec.Items{Units: []spec.Unit{{Name: "x.service", DropIns: []spec.DropIn{{Name: "own", Content: "[Service]\n"}}}}}, Options{}
	}},
	"perm": {"home/data", "f", []string{"user"}, true, func(a *arena) (spec.Items, Options) {
		return spec.Items{Perm: &spec.Perm{Paths: []spec.PermPath{{Path: a.root + "/home/data/f", Owner: "nobody", Mode: "0604"}}}}, Options{}
	}},
	"mounts": {"home/data", "m", []string{"", "empty"}, false, func(a *arena) (spec.Items, Options) {
		return spec.Items{Mounts: []spec.Mount{{ID: "m", Device: "tmpfs", Type: "tmpfs", Target: a.root + "/home/data/m", Options: []string{"mode=0755"}},
			{ID: "b", Device: a.root + "/srv", Type: "none", Target: a.root + "/home/data/bound", Options: []string{"bind", "ro"}}}}, Options{}
	}},
	"swaps": {"home/data", "swap", []string{"swap"}, false, func(a *arena) (spec.Items, Options) {
		return spec.Items{Swaps: []spec.Swap{{Device: a.root + "/home/data/swap"}}}, Options{}
	}},
	"service": {"srv/app", "conf", []string{"", "root", "user", "link", "empty", "full"}, false, func(a *arena) (spec.Items, Options) {
		return spec.Items{}, Options{Images: a, Services: []spec.Service{{Name: "app", Unit: "app.service", Commit: strings.Repeat("1", 40), Image: a.image, User: "nobody",
			Directories: []spec.ServiceDirectory{{From: "conf", To: "/srv/app/conf"}, {From: "conf", To: "/srv/app/new/deep"}}}}}
	}},
	"accounts": {"home/.caisson-u", ".ssh", []string{""}, false, func(*arena) (spec.Items, Options) {
		v := accounts.Value{Kind: "home", Mode: 0o755, UID: attack.Nobody, GID: attack.Nobody}
		v.Tree = []accounts.Node{{Path: ".ssh", Dir: true, Mode: 0o755, UID: attack.Nobody, GID: attack.Nobody}, {Path: ".ssh/authorized_keys", Data: []byte("site\n"), Mode: 0o644, UID: attack.Nobody, GID: attack.Nobody}}
		return spec.Items{}, Options{Accounts: accounts.Want{Changes: []accounts.Change{{Key: "/home/u", To: v}}}}
	}},
}

// moves holds the acts that the user repeats: in a directory of his he may put
// anything in the place of anything.
var moves = map[string]func(a *arena, r raced, n int){
	"something else at the place": func(a *arena, r raced, n int) {
		at, lure := a.path(r.way, r.name), a.path(r.way, a.lure(n))
		if unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, lure, unix.RENAME_EXCHANGE) != nil {
			_ = os.Symlink(a.path("victim"), at) // it may be there already
		}
	},
	"something else on the way": func(a *arena, r raced, _ int) {
		_ = unix.Renameat2(unix.AT_FDCWD, a.path(r.way), unix.AT_FDCWD, a.path(filepath.Dir(r.way), "aside"), unix.RENAME_EXCHANGE) // as above
	},
	"something else that was made": func(a *arena, r raced, n int) {
		for _, dir := range []string{r.way, r.way + "/new"} {
			names, _ := os.ReadDir(a.path(dir)) // it comes and goes
			for _, e := range names {
				if e.Name() == "deep" || strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), ".lure") {
					_ = unix.Renameat2(unix.AT_FDCWD, a.path(dir, e.Name()), unix.AT_FDCWD, a.path(r.way, a.lure(n)), unix.RENAME_EXCHANGE) // as above
				}
			}
		}
	},
	"links at names that might be taken": func(a *arena, r raced, n int) {
		for _, guess := range []string{"." + r.name + ".caisson", "." + r.name + ".link", ".caisson-" + r.name} {
			at := a.path(r.way, guess)
			if os.Symlink(a.path("victim", "secret"), at) != nil {
				_ = os.Remove(at) // as above
			}
		}
	},
}

// arena is a small system with a user in it.
type arena struct {
	t     *testing.T
	root  string
	image spec.Blob
	data  string // the image's file
	was   string // the victim
}

func (a *arena) path(parts ...string) string {
	return filepath.Join(append([]string{a.root}, parts...)...)
}

func (a *arena) Ready(spec.Blob) error { return nil }

func (a *arena) Mount(_ spec.Blob, at string) error {
	return layers.Image{Path: a.data, Type: "application/vnd.caisson.image.v1.squashfs"}.Mount(at)
}

// lures lists the names with which a user replaces others.
var lures = []string{".lure-victim", ".lure-secret", ".lure-victim", ".lure-private", ".lure-victim", ".lure-mine", ".lure-victim", ".lure-hers", ".lure-victim", ".lure-hers-too"}

// lure is one of them, the same one for a while: what is exchanged comes back.
func (*arena) lure(n int) string { return lures[n/64%len(lures)] }

func newArena(t *testing.T, kind string) *arena {
	a := &arena{t: t, root: t.TempDir()}
	if kind == "service" {
		require.Tool(t, "mksquashfs")
		tree := t.TempDir()
		a.data = filepath.Join(t.TempDir(), "image")
		must(t, os.Chmod(tree, 0o755), os.Mkdir(tree+"/conf", 0o755), os.WriteFile(tree+"/conf/x", []byte("site\n"), 0o644))
		if said, err := exec.Command("mksquashfs", tree, a.data, "-quiet", "-no-progress", "-all-root").CombinedOutput(); err != nil {
			t.Fatalf("mksquashfs: %v\n%s", err, said)
		}
		data, err := os.ReadFile(a.data)
		must(t, err)
		a.image = spec.Blob{Digest: digest.Of(data), Size: int64(len(data))}
	}
	must(t, os.Chmod(filepath.Dir(a.root), 0o755), os.Chmod(a.root, 0o755))
	return a
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// lay makes the system again.
func (a *arena) lay(r raced, was string) {
	a.t.Helper()
	a.detach()
	entries, err := os.ReadDir(a.root)
	must(a.t, err)
	for _, e := range entries {
		must(a.t, os.RemoveAll(a.path(e.Name())))
	}
	at := a.path(r.way, r.name)
	must(a.t, os.MkdirAll(a.path(r.way), 0o755), os.MkdirAll(a.path("etc"), 0o755), os.MkdirAll(a.path("srv"), 0o755), os.MkdirAll(a.path("run/caisson"), 0o755), os.MkdirAll(a.path("victim/private/in"), 0o755),
		os.WriteFile(a.path("etc/passwd"), []byte("nobody:x:65534:65534::/:/bin/false\n"), 0o644), os.WriteFile(a.path("victim/secret"), []byte("secret\n"), 0o600), os.Chmod(a.path("victim/private"), 0o700),
		os.WriteFile(a.path(r.way, ".lure-hers"), []byte(map[bool]string{true: "his\n", false: "hers\n"}[r.gives]), 0o600), os.Mkdir(a.path(r.way, ".lure-hers-too"), 0o700), os.WriteFile(a.path(r.way, ".lure-hers-too/in"), nil, 0o600),
		os.Symlink(a.path("victim/secret"), a.path(r.way, ".lure-secret")), os.Symlink(a.path("victim/private"), a.path(r.way, ".lure-private")), os.Symlink(a.path("victim"), a.path(r.way, ".lure-victim")),
		os.WriteFile(a.path(r.way, ".lure-mine"), swapSpace("mine\n"), 0o600), os.Symlink(a.path("victim"), a.path(filepath.Dir(r.way), "aside")))
	if slices.Contains(r.was, "empty") {
		must(a.t, os.Mkdir(a.path("victim", r.name), 0o755))
	} else {
		must(a.t, os.WriteFile(a.path("victim", r.name), []byte("root's\n"), 0o600))
	}
	switch was {
	case "root", "user":
		must(a.t, os.WriteFile(at, []byte(map[string]string{"root": "root's\n", "user": "mine\n"}[was]), 0o600))
	case "swap":
		must(a.t, os.WriteFile(at, swapSpace("root's\n"), 0o600))
	case "link":
		must(a.t, os.Symlink("somewhere", at))
	case "empty", "full":
		must(a.t, os.Mkdir(at, 0o755))
	}
	if was == "full" {
		must(a.t, os.WriteFile(at+"/in", []byte("root's\n"), 0o644))
	}
	owned := []string{r.way, filepath.Dir(r.way), r.way + "/.lure-mine"}
	if was == "user" || was == "empty" {
		owned = append(owned, r.way+"/"+r.name)
	}
	for _, name := range owned {
		must(a.t, os.Lchown(a.path(name), attack.Nobody, attack.Nobody))
	}
	a.was = a.victims(r)
}

// swapSpace is a small file that mkswap(8) has made, and says whose it is.
func swapSpace(whose string) []byte {
	page := os.Getpagesize()
	data := make([]byte, 16*page)
	copy(data, whose)
	binary.NativeEndian.PutUint32(data[1024:], 1)  // version
	binary.NativeEndian.PutUint32(data[1028:], 15) // last page
	copy(data[page-10:], "SWAPSPACE2")
	return data
}

// victims is all that the user must not get at: what is root's elsewhere, and what root
// has put into a directory of his.
func (a *arena) victims(r raced) string {
	a.t.Helper()
	var out strings.Builder
	must(a.t, filepath.WalkDir(a.path("victim"), func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Statx_t
		must(a.t, unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st))
		fmt.Fprintf(&out, "%s %o %d:%d mounted %v", name, st.Mode, st.Uid, st.Gid, st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0)
		if e.Type().IsRegular() {
			data, err := os.ReadFile(name)
			must(a.t, err)
			fmt.Fprintf(&out, " %q", data)
		}
		out.WriteByte('\n')
		return nil
	}))
	must(a.t, filepath.WalkDir(a.path(strings.Split(r.way, "/")[0]), func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		must(a.t, err)
		info, err := e.Info()
		must(a.t, err)
		st := info.Sys().(*syscall.Stat_t)
		var data []byte
		if e.Type().IsRegular() {
			data, err = os.ReadFile(name)
			must(a.t, err)
		}
		if info.Mode()&os.ModeSetuid != 0 || st.Uid == 0 && bytes.HasPrefix(data, []byte("mine\n")) || st.Uid != 0 && bytes.HasPrefix(data, []byte("hers\n")) || bytes.HasPrefix(data, []byte("hers\n")) && info.Mode().Perm() != 0o600 {
			fmt.Fprintf(&out, "%s is %v, of %d: %q\n", name, info.Mode(), st.Uid, data)
		}
		return nil
	}))
	swaps, err := os.ReadFile("/proc/swaps")
	must(a.t, err)
	for line := range strings.Lines(string(swaps)) {
		name := strings.Fields(line)[0]
		data, err := os.ReadFile(name)
		if strings.HasPrefix(name, a.root) && err == nil && bytes.HasPrefix(data, []byte("mine\n")) {
			fmt.Fprintf(&out, "%s takes what the memory holds\n", name)
		}
	}
	return out.String()
}

// detach takes away all mounts and swap space in the arena.
func (a *arena) detach() {
	a.t.Helper()
	swaps, err := os.ReadFile("/proc/swaps")
	must(a.t, err)
	for line := range strings.Lines(string(swaps)) {
		if name := strings.Fields(line)[0]; strings.HasPrefix(name, a.root) {
			must(a.t, (&machine{}).swapoff(name))
		}
	}
	for {
		data, err := os.ReadFile("/proc/self/mountinfo")
		must(a.t, err)
		last := ""
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], a.root+"/") {
				last = f[4]
			}
		}
		if last == "" {
			return
		}
		must(a.t, unix.Unmount(last, unix.MNT_DETACH))
	}
}

// item is the kind, wanting what it races for or nothing.
func (a *arena) item(kind string, r raced, wanted bool, j item.Journal) item.Item {
	want, o := r.want(a)
	if !wanted {
		want, o.Services, o.Accounts = spec.Items{}, nil, accounts.Want{}
	}
	o.Journal, o.Scopes, o.Etc, o.State = j, itemtest.Scopes, a.path("etc"), a.path("state")
	all := Table(want, o)
	return all[slices.IndexFunc(all, func(it item.Item) bool { return it.Name() == kind })]
}

// race plays one round: the agent applies and goes back, and the user acts meanwhile.
// It reports whether the agent did anything.
func (a *arena) race(kind string, r raced, move func(a *arena, r raced, n int), was string) (acted bool) {
	t := a.t
	t.Helper()
	a.lay(r, was)
	j := itemtest.Journal(t, t.TempDir())
	it := a.item(kind, r, true, j)
	drift, err := it.Check(t.Context())
	must(t, err)
	if drift[0].Action == spec.ActionRefuse {
		t.Fatalf("%+v", drift)
	}
	judge := func(when string) {
		t.Helper()
		if now := a.victims(r); now != a.was {
			t.Fatalf("%s: the user gained. Before:\n%s\nnow:\n%s", when, a.was, now)
		}
	}
	end := attack.Race(t, func(n int) { move(a, r, n) })
	err = it.Apply(t.Context(), drift)
	end()
	acted = err == nil
	judge("apply")
	end = attack.Race(t, func(n int) { move(a, r, n) })
	_, err = it.Check(t.Context())
	err = errors.Join(err, a.item(kind, r, false, j).Restore(t.Context(), j.Entries(kind)))
	if kind == "service" {
		err = errors.Join(err, service.Tidy(service.Places{Root: a.root, Run: a.path("run/caisson/service")}))
	}
	end()
	judge("restore")
	return acted || err == nil
}

func raceAll(t *testing.T, until func(r raced, began time.Time, round int) bool) {
	if !itemtest.InNamespaces(t) {
		return
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, it := range Table(spec.Items{}, Options{Journal: itemtest.Journal(t, t.TempDir())}) {
		if _, is := races[it.Name()]; is == itemtest.Says(t, ".", it.Name(), itemtest.Private) {
			t.Errorf("the kind %s needs a race here, or a reason in the file of its suite: // %s…", it.Name(), itemtest.Private)
		}
	}
	for kind, r := range races {
		for what, move := range moves {
			t.Run(kind+"/"+what, func(t *testing.T) {
				a := newArena(t, kind)
				defer a.detach()
				acted, rounds := 0, 0
				for began := time.Now(); !until(r, began, rounds); rounds++ {
					if a.race(kind, r, move, r.was[rounds%len(r.was)]) {
						acted++
					}
				}
				t.Logf("the agent acted in %d of %d rounds", acted, rounds)
			})
		}
	}
}

// While the agent applies, goes back and collects, a user who owns the directory in which
// it acts changes it, as fast as he can: he gains nothing.
func TestUsersRace(t *testing.T) {
	raceAll(t, func(r raced, _ time.Time, round int) bool { return round == max(2, len(r.was)) })
}

// The same for long enough that a window of a microsecond is met.
func TestUsersRaceLong(t *testing.T) {
	require.Long(t)
	raceAll(t, func(_ raced, began time.Time, round int) bool {
		return round >= 12 && time.Since(began) > 2*time.Second
	})
}
