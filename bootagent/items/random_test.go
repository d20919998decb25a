// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"errors"
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
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	execs "github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/mounts"
	"github.com/caisson-os/caisson/bootagent/items/nics"
	"github.com/caisson-os/caisson/bootagent/items/perm"
	"github.com/caisson-os/caisson/bootagent/items/tunable"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// machine is the real kernel in namespaces of the test, with files in a directory.
type machine struct {
	t       *testing.T
	root    string
	journal *journal.Journal
	swap    string // a file of swap space; "" where none can be used
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
	if err := os.WriteFile(filepath.Join(m.root, "etc/had.conf"), []byte("of the layer\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	link := "link add " + nic + " numrxqueues 4 numtxqueues 4 type veth peer name cs1 numrxqueues 4 numtxqueues 4"
	if out, err := exec.Command("ip", strings.Fields(link)...).CombinedOutput(); err != nil {
		t.Fatalf("ip link add: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", nic).Run() })
	m.start()
	m.makeSwap()
	return m
}

// nic is an interface whose name has a dot, as a VLAN's has.
const nic = "cs0.7"

// makeSwap makes a file of swap space, if one can be used.
func (m *machine) makeSwap() {
	name := filepath.Join(m.root, "swapfile")
	if err := os.WriteFile(name, swapSpace(""), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = m.swapoff(name) }) // a test that failed may have left it
	it := mounts.NewSwaps([]spec.Swap{{Device: name}}, "/proc", "/dev", m.journal)
	err := it.Apply(m.t.Context(), []spec.Drift{{Key: name, Action: spec.ActionAdd}})
	if err == nil {
		m.swap, err = name, it.Restore(m.t.Context(), m.journal.Entries(mounts.SwapsName))
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) swapoff(name string) error {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(path)), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// start is the agent's start: the process before it is gone.
func (m *machine) start() {
	m.t.Helper()
	m.journal = itemtest.Journal(m.t, filepath.Join(m.root, "state", "journal"))
}

func (m *machine) items(want spec.Items) []item.Item {
	return Table(want, Options{Journal: m.journal, Scopes: itemtest.Scopes, Etc: m.root + "/etc", Sys: m.root + "/sys", State: m.root + "/state",
		Signed: func() []execs.Signed { return []execs.Signed{{Script: m.mark()}} }})
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
		{"net/ipv4/conf/" + nic + "/forwarding", []string{"0", "1"}},
		{"net/ipv4/conf/all/accept_redirects", []string{"0", "1"}},
		{"net/ipv4/tcp_rmem", []string{"4096 131072 6291456", "4096 8192 65536"}},
		{"net/ipv6/conf/all/disable_ipv6", []string{"0", "1"}},
		{"net/ipv4/ip_local_reserved_ports", []string{"", "1000-2000"}},
	} {
		// The first two are one value by two names: wanting both is not valid.
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
			w.Ethtool = append(w.Ethtool, spec.Feature{Interface: nic, Feature: feature, On: feature == "rx-gro" && some()})
		}
	}
	if some() {
		w.NICs = append(w.NICs, spec.NIC{ID: "a", Match: spec.NICMatch{Name: nic}, Settings: []spec.NICSetting{{Group: "channels", Name: "rx", Value: pick("1", "2", "3")}}})
		if some() { // which no list of features above has
			w.NICs[0].Settings = append(w.NICs[0].Settings, spec.NICSetting{Group: spec.NICFeatures, Name: "tx-nocache-copy", Value: "on"})
		}
	}
	if some() && m.swap != "" {
		s := spec.Swap{Device: m.swap, Discard: pick("", "once")}
		if n := r.IntN(3); n > 0 {
			s.Priority = &n
		}
		w.Swaps = append(w.Swaps, s)
	}
	for _, name := range []string{"/etc/had.conf", "/etc/made/by/cs.conf"} {
		if some() {
			w.Files = append(w.Files, spec.File{Path: name, Content: pick("", "one\n", "two\n"), Mode: pick("", "0600"), Owner: pick("", "7")})
		}
	}
	if r.IntN(4) == 0 {
		w.Exec = []spec.Exec{m.mark()}
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
	return m.kernel() + m.files()
}

// kernel returns the part of the kernel that the configs can reach.
func (m *machine) kernel() string {
	m.t.Helper()
	return m.walk("/proc/sys/net/ipv4", "/proc/sys/net/ipv6/conf")
}

// walk lists what is below directories: names, modes, owners and content.
func (m *machine) walk(dirs ...string) string {
	m.t.Helper()
	var out strings.Builder
	for _, dir := range dirs {
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
	return out.String()
}

// files is all that the configs can reach but the kernel, and what they change in passing.
func (m *machine) files() string {
	m.t.Helper()
	var out strings.Builder
	out.WriteString(m.walk(m.root+"/etc", m.root+"/srv", m.root+"/sys"))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, m.root) {
			out.WriteString(line)
		}
	}
	used, err := os.ReadFile("/proc/swaps")
	if err != nil {
		m.t.Fatal(err)
	}
	if strings.Contains(string(used), m.root) {
		out.WriteString("its swap space is in use\n")
	}
	// What a look at impossible settings finds is really there.
	impossible := nics.New([]spec.NIC{{ID: "a", Match: spec.NICMatch{Name: nic}, Settings: []spec.NICSetting{{Group: "channels", Name: "rx", Value: "999"}, {Group: "channels", Name: "tx", Value: "999"}}}}, "/sys", m.journal)
	found, err := impossible.Check(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, d := range found {
		if d.Key != "" && d.To != "" {
			fmt.Fprintln(&out, d.Key, d.From)
		}
	}
	features, err := nics.NewEthtoolKernel().Features(nic)
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

// meddle changes by hand what caisson keeps by now: some of it is written to, some
// taken away. What the journal does not know is nobody's yet, and left alone.
func (m *machine) meddle(r *rand.Rand) {
	kept := func(kind string, key string) bool {
		return r.IntN(3) == 0 && slices.ContainsFunc(m.journal.Entries(kind), func(e item.Entry) bool { return e.Key == key })
	}
	do := func(err error) {
		m.t.Helper()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.t.Fatal(err)
		}
	}
	spoil := func(name string) {
		switch r.IntN(3) {
		case 0:
			do(os.Remove(name))
		case 1:
			if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
				do(os.WriteFile(name, []byte("by hand\n"), 0o644))
			}
		default:
			if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
				do(os.Chmod(name, 0o604))
			}
		}
	}
	for _, kind := range []string{files.Name, modules.Name, units.Name} {
		for _, e := range m.journal.Entries(kind) {
			if strings.HasPrefix(e.Key, "/") && kept(kind, e.Key) {
				spoil(m.root + e.Key)
			}
		}
	}
	for _, id := range []string{"one", "two"} {
		if kept(files.LimitsName, id) {
			spoil(m.root + "/etc/security/limits.d/60-caisson-" + id + ".conf")
		}
	}
	for _, s := range []spec.Sysctl{{Key: "net/ipv4/tcp_rmem", Value: "4096 9000 70000"}, {Key: "net/ipv4/ip_local_reserved_ports", Value: "7-9"}} {
		if kept(tunable.SysctlName, s.Key) {
			do(os.WriteFile("/proc/sys/"+s.Key, []byte(s.Value), 0))
		}
	}
	for _, name := range []string{"scheduler", "nr_requests"} {
		if kept(tunable.SysfsName, "/sys/block/vda/queue/"+name) {
			do(os.WriteFile(m.root+"/sys/block/vda/queue/"+name, []byte("9\n"), 0))
		}
	}
	for _, target := range []string{m.root + "/srv/new/a", m.root + "/srv/new/b"} {
		if kept(mounts.Name, target) {
			_ = unix.Unmount(target, 0) // it may have gone by a kill
		}
	}
	if kept(mounts.SwapsName, m.swap) {
		_ = m.swapoff(m.swap) // the same
	}
	if kept(nics.FeaturesName, nic+"/rx-gro") {
		do(nics.NewEthtoolKernel().Change(nic, map[string]bool{"rx-gro": r.IntN(2) == 0}))
	}
	if kept(nics.Name, nic+"/channels/rx") {
		if out, err := exec.Command("ethtool", "-L", nic, "rx", "4").CombinedOutput(); err != nil && !strings.Contains(string(out), "no channel parameters changed") {
			m.t.Logf("ethtool: %v: %s", err, out)
		}
	}
	for _, name := range []string{"a", "b", "tool"} {
		if kept(perm.Name, m.root+"/srv/"+name) {
			do(os.Chmod(m.root+"/srv/"+name, 0o601))
		}
	}
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
		ctx = &itemtest.Killer{Context: ctx, N: 1 + r.IntN(160), Die: func() { panic(died{}) }}
	}
	if r.IntN(2) == 0 {
		Reconcile(ctx, m.items(next), m.journal)
	} else {
		Transact(ctx, m.items(next), m.items(now), m.journal, nil)
	}
}

// Whatever configs follow one another, live or at a start, and wherever they are
// cut: when nothing is wanted any more, everything is as it was; and on the way,
// a run that is not cut ends without drift. The first seed is drawn, or CAISSON_SEED; one
// that fails is in the name of its test.
func TestRandomSequences(t *testing.T) {
	sequences := 100
	if testing.Short() {
		sequences = 5
	}
	all, first := number(t, "CAISSON_SEQUENCES", sequences), number(t, "CAISSON_SEED", rand.Int())
	const parts = 4 // each in namespaces of its own: they run in parallel
	for n := range uint64(parts) {
		t.Run(fmt.Sprintf("part %d", n), func(t *testing.T) {
			if itemtest.InNamespaces(t, "ip", "ethtool") {
				randomSequences(t, first+all*n/parts, all*(n+1)/parts-all*n/parts)
			}
		})
	}
}

// TestLongRandomSequences is ten thousand others. Several processes may share them:
// each is told its number and its first.
func TestLongRandomSequences(t *testing.T) {
	require.Long(t)
	if !itemtest.InNamespaces(t, "ip", "ethtool") {
		return
	}
	randomSequences(t, number(t, "CAISSON_SEED", 1_000_000), number(t, "CAISSON_SEQUENCES", 10_000))
}

// number is a number of the environment, or otherwise.
func number(t *testing.T, name string, otherwise int) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return uint64(otherwise)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func randomSequences(t *testing.T, from, sequences uint64) {
	var kernel string // as the sequence before has left it, which is as it found it
	for seed := from; seed < from+sequences; seed++ {
		if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 12))
			m := newMachine(t)
			if kernel == "" {
				kernel = m.kernel()
			}
			before := kernel + m.files()
			var now spec.Items
			for range 1 + r.IntN(5) {
				next := m.choose(r)
				m.step(r, next, now)
				now = next
				if r.IntN(2) == 0 {
					m.meddle(r)
				}
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
