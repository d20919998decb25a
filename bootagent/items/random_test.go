// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/ethtool"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/itemtest"
	"github.com/caisson-os/caisson/bootagent/journal"
	"github.com/caisson-os/caisson/spec"
)

// machine is the real kernel in namespaces of the test, with files in a directory.
type machine struct {
	t       *testing.T
	root    string
	journal *journal.Journal
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir()}
	for _, dir := range []string{"etc", "srv/empty", "srv/source", "sys/block/vda/queue"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"srv/a", "srv/b", "srv/tool"} {
		if err := os.WriteFile(filepath.Join(m.root, name), nil, 0o4755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"scheduler", "nr_requests"} {
		if err := os.WriteFile(filepath.Join(m.root, "sys/block/vda/queue", name), []byte("64\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("ip", "link", "add", "cs0", "type", "veth", "peer", "name", "cs1").CombinedOutput(); err != nil {
		t.Fatalf("ip link add: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "cs0").Run() })
	m.start()
	return m
}

// start is the agent's start: the process before it is gone.
func (m *machine) start() {
	m.t.Helper()
	m.journal = itemtest.Journal(m.t, filepath.Join(m.root, "state", "journal"))
}

func (m *machine) items(want spec.Items) []item.Item {
	return Table(want, Options{Journal: m.journal, Scopes: itemtest.Scopes, Etc: m.root + "/etc", Sys: m.root + "/sys", State: m.root + "/state",
		Signed: func() []spec.Exec { return []spec.Exec{m.mark()} }})
}

// choose is a random config; each part is there or not, with one of few values,
// so that configs overlap and conflict.
func (m *machine) choose(r *rand.Rand) spec.Items {
	var w spec.Items
	some := func() bool { return r.IntN(2) == 0 }
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	if some() {
		w.Mounts = append(w.Mounts, spec.Mount{ID: "a", Device: "tmpfs", Target: m.root + "/srv/new/a", Type: "tmpfs",
			Options: []string{pick("size=1m", "size=2m"), pick("nosuid", "noexec", "ro")}})
	}
	if some() {
		w.Mounts = append(w.Mounts, spec.Mount{ID: "b", Device: m.root + pick("/srv/source", "/srv/empty"), Target: m.root + "/srv/new/b", Type: "none",
			Options: []string{"bind", pick("ro", "nodev")}})
	}
	for _, id := range []string{"one", "two"} {
		if some() {
			w.Limits = append(w.Limits, spec.Limit{ID: id, Domain: "*", Type: "soft", Item: "nofile", Value: strconv.Itoa(r.IntN(3))})
		}
	}
	for _, c := range []struct {
		key    string
		values []string
	}{
		{"net/ipv4/conf/all/forwarding", []string{"0", "1"}},
		{"net/ipv4/ip_forward", []string{"0", "1"}},
		{"net/ipv4/conf/cs0/forwarding", []string{"0", "1"}},
		{"net/ipv4/conf/all/accept_redirects", []string{"0", "1"}},
		{"net/ipv4/tcp_rmem", []string{"4096 131072 6291456", "4096 8192 65536"}},
		{"net/ipv6/conf/all/disable_ipv6", []string{"0", "1"}},
		{"net/ipv4/ip_local_reserved_ports", []string{"", "1000-2000"}},
	} {
		// The first two are one value by two names: wanting both is no config.
		if r.IntN(3) == 0 && !(c.key == "net/ipv4/ip_forward" && hasKey(w.Sysctl, "net/ipv4/conf/all/forwarding")) {
			w.Sysctl = append(w.Sysctl, spec.Sysctl{Key: c.key, Value: pick(c.values...)})
		}
	}
	for _, name := range []string{"scheduler", "nr_requests"} {
		if some() {
			w.Sysfs = append(w.Sysfs, spec.Sysfs{Path: "/sys/block/vda/queue/" + name, Value: pick("", "1", "2")})
		}
	}
	if some() {
		w.Modules = &spec.Modules{Blacklist: []string{pick("cs_one", "cs_two")}, Parameters: []spec.ModuleParameter{{Module: "cs_one", Name: "n", Value: pick("1", "2")}}}
	}
	if some() {
		w.Units = append(w.Units, spec.Unit{Name: "cs.service", State: pick("", spec.UnitEnabled, spec.UnitDisabled),
			Content: pick("[Service]\n[Install]\nWantedBy=multi-user.target\n", "[Service]\n[Install]\nWantedBy=a.target b.target\n"),
			DropIns: []spec.DropIn{{Name: "10-cs", Content: pick("[Unit]\n", "[Service]\n")}}})
	}
	for _, feature := range []string{"tso", "tx-checksumming", "sg", "rx-gro", "gso"} {
		if r.IntN(3) == 0 {
			w.Ethtool = append(w.Ethtool, spec.Feature{Interface: "cs0", Feature: feature, On: feature == "rx-gro" && some()})
		}
	}
	if some() {
		w.Perm = &spec.Perm{}
		for _, name := range []string{"a", "b", "tool"} {
			if some() {
				w.Perm.Paths = append(w.Perm.Paths, spec.PermPath{Path: m.root + "/srv/" + name, Owner: pick("", "7"), Mode: pick("0640", "4711", "u=rw,go=")})
			}
		}
	}
	return w
}

func hasKey(list []spec.Sysctl, key string) bool {
	return slices.ContainsFunc(list, func(s spec.Sysctl) bool { return s.Key == key })
}

// snapshot is all that the configs can reach, and what they change in passing.
func (m *machine) snapshot() string {
	m.t.Helper()
	var out strings.Builder
	for _, dir := range []string{"/proc/sys/net/ipv4", "/proc/sys/net/ipv6/conf", m.root + "/etc", m.root + "/srv", m.root + "/sys"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				return err
			}
			fmt.Fprintf(&out, "%s %o %d:%d", strings.TrimPrefix(path, m.root), st.Mode, st.Uid, st.Gid)
			if d.Type().IsRegular() && !strings.HasSuffix(path, "stable_secret") && st.Mode&0o400 != 0 {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(&out, " %q", data)
			}
			out.WriteByte('\n')
			return nil
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, m.root) {
			out.WriteString(line)
		}
	}
	features, err := ethtool.NewKernel().Features("cs0")
	if err != nil {
		m.t.Fatal(err)
	}
	for name, s := range features {
		if s.Active || s.Requested {
			fmt.Fprintf(&out, "%s %v %v\n", name, s.Active, s.Requested)
		}
	}
	lines := strings.Split(out.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// step goes to another config, and may be killed on the way.
func (m *machine) step(r *rand.Rand, next, now spec.Items) {
	type died struct{}
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(died); !ok {
				panic(e)
			}
			m.start()
		}
	}()
	ctx := context.Context(m.t.Context())
	if r.IntN(2) == 0 {
		ctx = &itemtest.Killer{Context: ctx, N: 1 + r.IntN(120), Die: func() { panic(died{}) }}
	}
	if r.IntN(2) == 0 {
		Reconcile(ctx, m.items(next), m.journal)
	} else {
		Transact(ctx, m.items(next), m.items(now), m.journal, nil)
	}
}

// Whatever configs follow one another, live or at a start, and wherever they are
// cut: when nothing is wanted any more, everything is as it was; and on the way,
// a run that is not cut ends without drift.
func TestRandomSequences(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	sequences := 25
	if testing.Short() {
		sequences = 5
	}
	if text := os.Getenv("CAISSON_SEQUENCES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		sequences = n
	}
	for seed := range uint64(sequences) {
		if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 12))
			m := newMachine(t)
			before := m.snapshot()
			var now spec.Items
			for range 1 + r.IntN(5) {
				next := m.choose(r)
				m.step(r, next, now)
				now = next
			}
			result := Reconcile(t.Context(), m.items(now), m.journal)
			if result.Err != nil || len(result.Drift) > 0 {
				t.Errorf("the last config does not hold: %v %+v\n%+v", result.Err, result.Drift, now)
			}
			m.start()
			if result := Reconcile(t.Context(), m.items(spec.Items{}), m.journal); result.Err != nil || len(result.Drift) > 0 {
				t.Errorf("restore: %v %+v", result.Err, result.Drift)
			}
			if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(m.snapshot(), "\n")); diff != "" {
				t.Errorf("after all is restored (-before +after):\n%s", diff)
			}
			for _, it := range m.items(spec.Items{}) {
				if left := m.journal.Entries(it.Name()); len(left) > 0 {
					t.Errorf("entries are left: %+v", left)
				}
			}
		}) {
			return
		}
	}
}
