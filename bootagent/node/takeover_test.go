// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/takeover"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// file writes one below the root.
func (m *machine) file(name, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.root+name), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.root+name, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// kept are parameters of a host that Divingbell configured: before it, and since.
var kept = map[string][2]string{"net/core/somaxconn": {"128", "1024"}, "net/ipv4/conf/all/forwarding": {"0", "1"}, "net/ipv4/tcp_sack": {"0", "1"}, "vm/swappiness": {"60", "10"}}

// moving is such a host, which is to be caisson's.
func moving(t *testing.T) *remote {
	r := newRemote(t)
	r.file("/etc/machine-id", "1234\n")
	for key, values := range kept {
		name := strings.ReplaceAll(key, "/", ".")
		r.file("/proc/sys/"+key, values[1]+"\n")
		r.file(takeover.Records+"/sysctl/60-divingbell-"+name+".conf", name+" = "+values[0]+"\n")
		r.file("/etc/sysctl.d/60-divingbell-"+name+".conf", name+"="+values[1]+"\n")
	}
	return r
}

// holds compares the parameters, in the order of their names.
func (r *remote) holds(when string, want ...string) {
	r.t.Helper()
	for i, key := range slices.Sorted(maps.Keys(kept)) {
		data, err := os.ReadFile(r.root + "/proc/sys/" + key)
		if got := strings.TrimSpace(string(data)); err != nil || got != want[i] {
			r.t.Errorf("%s: %s is %s, want %s; %v", when, key, got, want[i], err)
		}
	}
}

// startOver boots such a host.
func (r *remote) startOver() {
	r.t.Helper()
	for key, values := range kept {
		value := values[1]
		if _, err := os.Stat(r.root + "/etc/sysctl.d/60-divingbell-" + strings.ReplaceAll(key, "/", ".") + ".conf"); err != nil {
			value = values[0]
		}
		r.file("/proc/sys/"+key, value+"\n")
	}
	r.set("1")
	for _, dir := range []string{paths.Run, paths.State + "/journal"} { // whose entries are of another kernel
		if err := os.RemoveAll(r.root + dir); err != nil {
			r.t.Fatal(err)
		}
	}
	folder, err := state.Open(r.root + paths.State)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := folder.Load()
	if err != nil {
		r.t.Fatal(err)
	}
	if s.Trial != nil {
		s.Trial.Boot = "another"
	}
	if err := folder.Save(s); err != nil {
		r.t.Fatal(err)
	}
}

// publishMoved is the first configuration of such a host: one value stays, one is
// another, and one is not in it any more. link "0" cuts the host off.
func (r *remote) publishMoved(generation uint64, link string, more ...spec.Feature) {
	r.t.Helper()
	r.within = time.Minute
	if link == "0" {
		r.within = 1200 * time.Millisecond // all of which goes by
	}
	r.publishItems(generation, "", spec.Items{Ethtool: more, Sysctl: []spec.Sysctl{{Key: "net/core/somaxconn", Value: "2048"}, {Key: "net/ipv4/conf/all/forwarding", Value: "1"},
		{Key: "net/ipv4/ip_forward", Value: link}, {Key: "vm/swappiness", Value: "20"}}})
}

// undone holds that the first change of the host is undone, and stays that; and that a
// change which stands, and leaving, lead where they would have.
func (r *remote) undone(when string) {
	r.t.Helper()
	for range 2 {
		r.holds(when, "1024", "1", "1", "20")
		if st := r.must(r.applyOnce()); st.Health != spec.HealthDegraded || r.got() != "1" {
			r.t.Errorf("%s: %+v, link %s", when, st, r.got())
		}
	}
	if _, err := os.Stat(r.root + "/etc/sysctl.d/60-divingbell-net.ipv4.conf.all.forwarding.conf"); err != nil {
		r.t.Errorf("%s: what sets it at the next boot: %v", when, err)
	}
	r.publishMoved(2, "2")
	if st := r.must(r.syncOnce()); st.Generation != 2 || st.Health != spec.HealthOK {
		r.t.Errorf("%s: %+v", when, st)
	}
	r.holds(when+", and a change stands", "2048", "1", "0", "20")
	if _, err := os.Stat(r.root + takeover.Records); !errors.Is(err, os.ErrNotExist) {
		r.t.Errorf("%s: it is taken over: %v", when, err)
	}
	r.restoreAll()
	r.holds(when+", and it leaves", "128", "0", "0", "60")
}

// What Divingbell had set holds after the first change was undone, however often the
// host is looked at, until a change stands; then, and when the host leaves, what was
// before Divingbell comes back.
func TestAFirstChangeThatIsUndoneKeepsWhatDivingbellSet(t *testing.T) {
	r := moving(t)
	r.publishMoved(1, "0")
	if _, err := r.syncOnce(); err == nil || !strings.Contains(err.Error(), "was undone") {
		r.t.Errorf("error %v", err)
	}
	r.undone("undone")
}

// So it does wherever the agent is killed, also when that takes the machine with it.
func TestAFirstChangeThatIsKilledKeepsWhatDivingbellSet(t *testing.T) { killFirstChange(t, 9, 11) }

func TestLongAFirstChangeThatIsKilled(t *testing.T) {
	require.Long(t)
	killFirstChange(t, 1, 1)
}

func killFirstChange(t *testing.T, from, every int) {
	for at := from; ; at += every {
		r := moving(t)
		r.publishMoved(1, "0")
		survived := r.kill("sync", at, 0)
		when := fmt.Sprintf("killed at step %d", at)
		if at%2 == 0 {
			when += " with the machine"
			r.startOver()
		}
		if _, err := r.syncOnce(); err != nil && !strings.Contains(err.Error(), "was undone") {
			t.Fatalf("%s: %v", when, err)
		}
		if r.undone(when); t.Failed() {
			return
		}
		if survived {
			if t.Logf("it has less than %d steps", at); at < 25 {
				t.Error("it tests too little")
			}
			return
		}
	}
}

func (r *remote) restoreAll() {
	r.t.Helper()
	if _, err := r.do(func(n *Node) (*spec.Status, error) { return nil, n.RestoreAll(r.t.Context()) }); err != nil {
		r.t.Fatal(err)
	}
}

// So do features.
func TestAFirstChangeThatIsUndoneKeepsFeatures(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "ethtool") {
		return
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	feature := func() bool { return strings.Contains(run("ethtool", "-k", "cs0"), "tcp-segmentation-offload: on") }
	run("ip", "link", "add", "cs0", "type", "veth", "peer", "name", "cs1")
	run("ethtool", "-K", "cs0", "tso", "off")
	r := moving(t)
	r.file(takeover.Records+"/ethtool/cs0.tx\\x2dtcp\\x2dsegmentation.service", "cs0 tx-tcp-segmentation on\n")
	r.publishMoved(1, "0")
	if _, err := r.syncOnce(); err == nil || !strings.Contains(err.Error(), "was undone") {
		t.Errorf("error %v", err)
	}
	for range 2 {
		if feature() {
			t.Error("the feature is what it was before Divingbell")
		}
		r.must(r.applyOnce())
	}
	r.publishMoved(2, "1", spec.Feature{Interface: "cs0", Feature: "tx-tcp-segmentation"})
	r.must(r.syncOnce())
	if feature() {
		t.Error("the change that stands wants it off")
	}
	if r.restoreAll(); !feature() {
		t.Error("the original did not come back")
	}
}
