// SPDX-License-Identifier: Apache-2.0

package items

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/accounts"
	execs "github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/nics"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// world is the real kernel in namespaces of the test, with directories of the test at /etc and
// /srv, and two interfaces.
type world struct {
	*testing.T
	dir string
}

func newWorld(t *testing.T) *world {
	disk, err := os.MkdirTemp("/var/tmp", "pairs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(disk) }) // of /var/tmp
	w := &world{t, t.TempDir()}
	if err := cmp.Or(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", w.dir, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(w.dir, unix.MNT_DETACH) }) // the namespace is the test's alone
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/shadow": "root:*:::::::\n", "etc/gshadow": "root:*::\n",
		"etc/subuid": "", "etc/subgid": "", "etc/.pwd.lock": "", "etc/security/limits.d/x": "", "srv/file": "",
		"etc/systemd/system/own.service": "[Service]\nExecStart=/bin/false\n",
		"lib/modules/x/modules.builtin":  "kernel/cs_one.ko\n", "nr_open": "1048576\n", "release": "x\n"} {
		at := filepath.Join(w.dir, name)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND, "") }
	if err := cmp.Or(bind(w.dir+"/etc", "/etc"), bind(w.dir+"/srv", "/srv"), bind(w.dir+"/nr_open", "/proc/sys/fs/nr_open"),
		os.Mkdir("/srv/disk", 0o755), bind(disk, "/srv/disk"), os.WriteFile("/srv/disk/swap", swapSpace(""), 0o600),
		bind(w.dir+"/release", "/proc/sys/kernel/osrelease"), unix.Mount("sysfs", "/sys", "sysfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	w.run(veth("cs0"))
	return w
}

func (w *world) run(command string) {
	w.Helper()
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v: %s", command, err, out)
	}
}

// shown is all that the settings can reach, as the kernel and the files show it.
func (w *world) shown() []string {
	w.Helper()
	m := &machine{t: w.T}
	lines := strings.Split(m.walk("/etc", "/srv"), "\n")
	for _, key := range []string{"fs/nr_open", "net/ipv4/ip_forward", "net/ipv4/conf/*/forwarding", "net/ipv4/conf/*/rp_filter"} {
		lines = append(lines, w.values("/proc/sys/"+key)...)
	}
	for _, key := range []string{"tx_queue_len", "ifalias", "queues/*/rps_cpus", "queues/*/byte_queue_limits/limit"} {
		lines = append(lines, w.values("/sys/class/net/*/"+key)...)
	}
	links, _ := filepath.Glob("/sys/class/net/*")
	for _, link := range links {
		features, err := nics.NewEthtoolKernel().Features(filepath.Base(link))
		if err != nil {
			w.Fatal(err)
		}
		for name, s := range features {
			lines = append(lines, fmt.Sprintf("%s %s %v %v", link, name, s.Active, s.Requested))
		}
	}
	for _, table := range []string{"/proc/self/mountinfo", "/proc/swaps"} {
		text, err := os.ReadFile(table)
		if err != nil {
			w.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); table == "/proc/swaps" && strings.Contains(line, "/srv/") {
				if fields[3] = ""; fields[4][0] == '-' { // what is swapped out, and how many spaces of all this machine are in use
					fields[4] = ""
				}
				lines = append(lines, strings.Join(fields, " "))
			} else if len(fields) > 5 && strings.HasPrefix(fields[4], "/srv/") {
				lines = append(lines, strings.Join(fields[3:], " ")) // without numbers of mounts and devices
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func (w *world) values(pattern string) (lines []string) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		lines = append(lines, fmt.Sprintf("%s %q %v", name, text, err))
	}
	return lines
}

// table makes the items of a generation.
func (w *world) table(g generation, j item.Journal, state string) []item.Item {
	return Table(g.items, Options{Journal: j, Scopes: testScopes, State: state, Lib: w.dir + "/lib", Accounts: g.who, Secrets: g.secrets,
		SecretDir:  filepath.Join(state, "secrets"),
		OpenSecret: func(spec.Secret) ([]byte, error) { return []byte("$6$salt$" + strings.Repeat("a", 86)), nil },
		Signed: func() (all []execs.Signed) {
			for _, script := range g.scripts {
				all = append(all, execs.Signed{Script: script})
			}
			return all
		}})
}

// ways in which a generation comes to a node.
var ways = map[string]func(ctx context.Context, w *world, g, none generation, j item.Journal, state string) Result{
	"live": func(ctx context.Context, w *world, g, none generation, j item.Journal, state string) Result {
		return Transact(ctx, w.table(g, j, state), w.table(none, j, state), j, nil)
	},
	"boot": func(ctx context.Context, w *world, g, _ generation, j item.Journal, state string) Result {
		early := g
		early.items = g.items.Early()
		loader := []string{secrets.Name, accounts.Name}
		for kind, when := range spec.Whens() {
			if when == spec.WhenLoader {
				loader = append(loader, kind)
			}
		}
		Add(ctx, w.table(g, j, state), j, loader)
		Add(ctx, w.table(early, j, state), j, EarlyKernel)
		Add(ctx, w.table(early, j, state), j, EarlyDisks)
		return Reconcile(ctx, w.table(g, j, state), j)
	},
}

// outcome is what a way led to.
type outcome struct {
	result  Result
	refused bool     // live, where a change is made whole or not at all
	left    []string // drift
	shown   []string
	entries []string
}

// come brings a generation to the node, by a way that is killed at a write unless that is 0, and
// takes all of it away again.
func (w *world) come(way string, g generation, kill int, before []string) (o outcome, killed bool) {
	w.Helper()
	state, err := os.MkdirTemp(w.dir, "state-")
	if err != nil {
		w.Fatal(err)
	}
	none := generation{scripts: g.items.Exec}
	g.scripts = g.items.Exec
	j := itemtest.Journal(w.T, state+"/journal")
	func() {
		type died struct{}
		defer func() {
			if e := recover(); e != nil {
				if _, ok := e.(died); !ok {
					panic(e)
				}
				killed = true
			}
		}()
		ctx := w.Context()
		if kill > 0 {
			ctx = &itemtest.Killer{Context: ctx, N: kill, Die: func() { panic(died{}) }}
		}
		o.result = ways[way](ctx, w, g, none, j, state)
	}()
	if killed {
		j = itemtest.Journal(w.T, state+"/journal")
		o.result = Reconcile(w.Context(), w.table(g, j, state), j)
	}
	o.left, o.shown, o.entries = lacks(o.result), w.shown(), entries(j, w.table(g, j, state))
	o.refused = way == "live" && !killed && o.result.Err != nil
	if again := Reconcile(w.Context(), w.table(g, j, state), j); !o.refused && !slices.Equal(o.left, lacks(again)) {
		w.Errorf("one pass leaves %q, and another %q", o.left, lacks(again))
	}
	gone := Reconcile(w.Context(), w.table(none, j, state), j)
	if gone.Err != nil || len(gone.Drift) > 0 || len(entries(j, w.table(none, j, state))) > 0 {
		w.Fatalf("it does not leave: %q, %v", lacks(gone), gone.Err)
	}
	if diff := gocmp.Diff(before, w.shown()); diff != "" {
		w.Fatalf("when it has left (-before +after):\n%s", diff)
	}
	return o, killed
}

func lacks(r Result) (list []string) {
	for _, d := range r.Drift {
		why, _, _ := strings.Cut(d.Reason, " at ") // of a script
		list = append(list, d.Item+" "+d.Key+": "+d.Action+" "+why)
	}
	return list
}

// ofObject are numbers of what is made anew each time: interfaces and files.
var ofObject = regexp.MustCompile(`,?"(index|ino|born)":\d+`)

// entries are the originals that a journal has.
func entries(j item.Journal, table []item.Item) (list []string) {
	for _, it := range table {
		for _, e := range j.Entries(it.Name()) {
			if e.Applied != nil { // else a cut run has kept what it might have changed in passing
				list = append(list, ofObject.ReplaceAllString(fmt.Sprintf("%s %s was %s, is %s", e.Item, e.Key, e.Prior, e.Applied), ""))
			}
		}
	}
	return list
}

// Any two settings of a site are applied in one pass, or are refused when the site is read: what
// one of them waits for without the other is all that is left. Whichever way they come, values and
// originals are the same, and when they have gone all is as it was. Here they are one pair of each
// two kinds.
func TestGeneratedPairs(t *testing.T) {
	require.Slow(t)
	if itemtest.InNamespaces(t, "ip") {
		pairs(t, func(all [][2]setting) (some [][2]setting) {
			r := rand.New(rand.NewPCG(43, 7))
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			drawn := map[[2]string]bool{}
			for _, p := range all {
				if kinds := [2]string{p[0].kind, p[1].kind}; !drawn[kinds] {
					drawn[kinds] = true
					some = append(some, p)
				}
			}
			return some
		})
	}
}

// TestLongGeneratedPairs has all of them.
func TestLongGeneratedPairs(t *testing.T) {
	require.Long(t)
	if itemtest.InNamespaces(t, "ip") {
		pairs(t, func(all [][2]setting) [][2]setting {
			return all
		})
	}
}

func pairs(t *testing.T, choose func([][2]setting) [][2]setting) {
	w := newWorld(t)
	before := w.shown()
	all := generate(t)
	var both [][2]setting
	for i, a := range all {
		for _, b := range all[i+1:] {
			both = append(both, [2]setting{a, b})
		}
	}
	both = choose(both)
	alone := map[string][]string{}
	invalid, kills := 0, 0
	for count, pair := range both {
		text := fmt.Sprint(pair)
		if slices.ContainsFunc(excused, func(e excuse) bool { return strings.Contains(text, e.one) && strings.Contains(text, e.other) }) {
			continue
		}
		g, valid := compile(t, pair[:]...)
		if !valid {
			invalid++
			continue
		}
		var known []string // what one of them leaves without the other
		for _, s := range pair {
			if _, done := alone[s.conf]; !done {
				g, _ := compile(t, s)
				o, _ := w.come("boot", g, 0, before)
				alone[s.conf] = o.left
			}
			known = append(known, alone[s.conf]...)
		}
		if t.Failed() {
			before = w.shown() // of what did not leave
		}
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			w := &world{t, w.dir}
			boot, _ := w.come("boot", g, 0, before)
			for _, d := range boot.left {
				key, _, _ := strings.Cut(d, ": ")
				if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, key+": ") }) {
					t.Errorf("left: %q", d)
				}
			}
			cut := []string{"boot", "live"}[count%2]
			for _, way := range []struct {
				name string
				kill int // at this write
			}{{"live", 0}, {cut, 1 + (7*count)%61}} {
				o, killed := w.come(way.name, g, way.kill, before)
				if killed {
					kills++
				}
				if !o.refused {
					w.same(fmt.Sprintf("%s, killed %t", way.name, killed), boot, o)
				}
			}
		})
	}
	t.Logf("%d settings, %d pairs, %d refused when the site is read, %d runs killed", len(all), len(both), invalid, kills)
	if kills < len(both)/4 {
		t.Errorf("%d of %d pairs had a run that was killed", kills, len(both))
	}
}

// same holds a way to another.
func (w *world) same(way string, want, got outcome) {
	w.Helper()
	for _, part := range [][2][]string{{want.left, got.left}, {want.shown, got.shown}, {want.entries, got.entries}} {
		if diff := gocmp.Diff(part[0], part[1]); diff != "" {
			w.Errorf("%s (-boot +%s):\n%s", way, way, diff)
		}
	}
}
