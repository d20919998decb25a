// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

// layered puts the description of a layer into the store of the node, and returns it and
// the digest of its manifest.
func (m *machine) layered(version, systemd string) (spec.Layer, string) {
	m.t.Helper()
	store, err := layers.OpenStore(m.root + paths.State + "/store")
	if err != nil {
		m.t.Fatal(err)
	}
	put := func(data []byte) spec.Blob {
		m.t.Helper()
		b := spec.Blob{Digest: oci.Digest(data), Size: int64(len(data))}
		if err := store.Put(b.Digest, data); err != nil {
			m.t.Fatal(err)
		}
		return b
	}
	image := put([]byte("image " + version))
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: fixture.Name, Version: version, Arch: runtime.GOARCH,
		Images: []spec.Image{{Name: "base", MediaType: "x", Blob: image}}, Packages: []spec.InstalledPackage{{Name: "systemd", Version: systemd}}}
	text, err := spec.Encode(l)
	if err != nil {
		m.t.Fatal(err)
	}
	config := put(text)
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":%q,"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"mediaType":"x","digest":%q,"size":%d}]}`,
		oci.TypeLayer, oci.TypeLayerConfig, config.Digest, config.Size, image.Digest, image.Size)
	return l, put([]byte(manifest)).Digest
}

// swapping is a machine that runs one layer and waits for another, and how it was left.
type swapping struct {
	*machine
	a, b        string
	soft, cold  int
	replugs     bool  // of the last soft-reboot
	stack, call error // of the service that makes the root, and of systemd
	was         *state.State
}

func newSwapping(t *testing.T, systemd string) *swapping {
	m := &swapping{machine: newMachine(t)}
	m.enrolled()
	var layer spec.Layer
	layer, m.a = m.layered("1", "257.8-1")
	_, m.b = m.layered("2", systemd)
	m.publish(1, m.a, "10")
	m.boot()
	m.recorded(func(b *record.Boot) { b.Layer = layer })
	m.apply()
	m.publish(2, m.b, "10")
	m.sync()
	m.layered("2", systemd) // as it is staged; what nobody waited for was deleted
	return m
}

// Start implements Runner: it is the service that makes the root.
func (m *swapping) Start(_ context.Context, c process.Command) (string, error) {
	if len(c.Args) != 2 || c.Args[0] != m.root+paths.Agent || c.Args[1] != paths.StackNext {
		m.t.Errorf("the service runs %q", c.Args)
	}
	if m.stack != nil {
		return "swap", os.WriteFile(c.Log, []byte("a bad blob\n"), 0o600)
	}
	return "swap", nil
}

// Wait implements Runner.
func (m *swapping) Wait(context.Context, string) error { return m.stack }

// End implements Runner.
func (m *swapping) End(string) error { return nil }

// Running implements Runner.
func (m *swapping) Running(string) bool { return false }

func (m *swapping) reboot() (class, why string) {
	m.t.Helper()
	n, err := Open(m.t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Runner: m, Say: m.t.Logf, Reboot: func(context.Context) error { m.cold++; return nil },
		SoftReboot: func(_ context.Context, replug bool) error {
			m.soft++
			m.was, m.replugs = m.state(), replug
			return m.call
		}}), m.bootstrap())
	if err != nil {
		m.t.Fatal(err)
	}
	defer n.Close() // the test is over
	class, why, err = n.destination.Reboot(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return class, why
}

func (m *swapping) deadline() bool {
	_, err := os.Stat(m.root + paths.RunDeadline)
	return err == nil
}

// A layer that waits is gone to by a soft-reboot, and the attempt is on the disk before.
func TestRebootIsASoftReboot(t *testing.T) {
	m := newSwapping(t, "257.9-1")
	if class, why := m.reboot(); class != spec.ClassSoftReboot || m.soft != 1 || m.cold != 0 {
		t.Fatalf("%s: %s", class, why)
	}
	if m.was.Staged == nil || m.was.Staged.Attempts != 1 || !m.deadline() {
		t.Errorf("when systemd was asked: %+v, deadline %v", m.was.Staged, m.deadline())
	}
	// Whatever became of it, the next one is not soft: it did not come up.
	if class, why := m.reboot(); class != spec.ClassReboot || m.soft != 1 || m.cold != 1 || !strings.Contains(why, "did not come up") {
		t.Errorf("the second one: %s: %s", class, why)
	}
}

// What waits is said with its class, as the plan has it, and where its layer is not here that it is not.
func TestTheWayToWhatWaits(t *testing.T) {
	for systemd, class := range map[string]string{"257.9-1": "soft-reboot: the root is stacked", "252.1-1": "reboot: the root is stacked"} {
		m := newSwapping(t, systemd)
		st := m.sync()
		reasons, err := os.ReadFile(m.root + paths.RebootReasons)
		if err != nil || !strings.HasPrefix(string(reasons), "caisson: generation 2: "+class) {
			t.Errorf("reasons: %q, %v", reasons, err)
		}
		if !strings.Contains(st.ActivityDetail, " is staged: "+class) {
			t.Errorf("status: %s: %s", st.Activity, st.ActivityDetail)
		}
		m.removeImage("image 2")
		st = m.sync()
		const missing = ": reboot: its layer is not staged: "
		if reasons, err = os.ReadFile(m.root + paths.RebootReasons); err != nil || !strings.HasPrefix(string(reasons), "caisson: generation 2"+missing) || !strings.Contains(st.ActivityDetail, missing) {
			t.Errorf("of a layer that is not here: %q, %v; %s", reasons, err, st.ActivityDetail)
		}
	}
}

// The record that a soft-reboot led to counts, and the pair is promoted.
func TestASoftRebootArrives(t *testing.T) {
	m := newSwapping(t, "257.9-1")
	m.reboot()
	b, err := record.LoadBoot(m.root + paths.RunBoot)
	if err != nil {
		t.Fatal(err)
	}
	b.RootID, b.Upper, b.Live, b.Generation = "next", paths.RootUpper, record.Live{}, *m.state().Staged
	if err := os.MkdirAll(filepath.Dir(m.root+paths.RootBoot), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := record.SaveBoot(m.root+paths.RootBoot, b); err != nil {
		t.Fatal(err)
	}
	if st := m.apply(); st.Layer != m.b || st.RootID != "next" || st.Generation != 2 || st.Staged != "" {
		t.Errorf("%+v", st)
	}
	if s := m.state(); s.Current == nil || s.Current.Layer != m.b || s.Previous == nil || s.Previous.Layer != m.a || s.Staged != nil || m.deadline() {
		t.Errorf("current %+v, previous %+v, deadline %v", s.Current, s.Previous, m.deadline())
	}
}

// A soft-reboot ends the agent that asks for it, maybe before it has heard that it begins:
// the attempt still counts.
func TestASoftRebootEndsTheAgent(t *testing.T) {
	m := newSwapping(t, "257.9-1")
	ctx, end := context.WithCancel(t.Context())
	n, err := Open(ctx, traced(session.Options{Root: m.root, Kernel: &m.kernel, Runner: m, Say: t.Logf, Reboot: func(context.Context) error { m.cold++; return nil },
		SoftReboot: func(ctx context.Context, _ bool) error { end(); return ctx.Err() }}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() // the test is over
	if class, why, err := n.destination.Reboot(ctx); class != spec.ClassSoftReboot || err != nil {
		t.Errorf("%s: %s, %v", class, why, err)
	}
	if s := m.state(); m.cold != 0 || s.Staged == nil || s.Staged.Attempts != 1 || !m.deadline() {
		t.Errorf("rebooted %d times, %+v, deadline %v", m.cold, s.Staged, m.deadline())
	}
}

// Where it cannot be soft, or does not begin, it is a reboot, and nothing of the attempt
// is left.
func TestRebootThatIsNotSoft(t *testing.T) {
	for name, c := range map[string]struct {
		systemd string
		change  func(m *swapping)
		why     string
	}{
		"an older systemd":         {"252.1-1", func(*swapping) {}, "needs 254"},
		"somebody else waits, too": {"257", func(m *swapping) { m.write(paths.RebootReasons, "linux-image\n") }, "linux-image"},
		"a frozen node":            {"257", func(m *swapping) { m.told(func(n *Node) error { return n.Freeze("", 0) }) }, "no other layer waits"},
		"a generation that the fleet has rejected since": {"257", func(m *swapping) {
			m.Current(spec.Fleet{Reject: []string{m.state().Staged.Overlay}}, time.Now())
			if _, err := m.say(func(n *Node) (*spec.Status, error) { return n.cycle.Sync(m.t.Context()) }); refusal.Of(err) != refusal.Rejected {
				m.t.Fatal(err)
			}
		}, "no other layer waits"},
		"a layer that is not staged": {"257", func(m *swapping) { m.removeImage("image 2") }, "not staged"},
		"a root that cannot be made": {"257", func(m *swapping) { m.stack = errors.New("exit status 1") }, "a bad blob"},
		"systemd refuses":            {"257", func(m *swapping) { m.call = errors.New("refused") }, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSwapping(t, c.systemd)
			c.change(m)
			if class, why := m.reboot(); class != spec.ClassReboot || m.cold != 1 || !strings.Contains(why, c.why) {
				t.Errorf("%s: %s", class, why)
			}
			if s := m.state(); s.Staged == nil || s.Staged.Attempts != 0 || m.deadline() {
				t.Errorf("of the attempt is left: %+v, deadline %v", s.Staged, m.deadline())
			}
		})
	}
}

func (m *swapping) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.root+name, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *swapping) removeImage(text string) {
	m.t.Helper()
	store, err := layers.OpenStore(m.root + paths.State + "/store")
	if err == nil {
		err = os.Remove(store.Path(oci.Digest([]byte(text))))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}
