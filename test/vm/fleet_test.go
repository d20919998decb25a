// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// limit is how long one step of a machine may take, without KVM and on a busy
// host, before the test gives up.
const limit = 30 * time.Minute

// fleet makes a fleet of the quickstart, once a test, publishes it and serves the
// result. edits are pairs of texts, replaced in the site before.
func fleet(t *testing.T, edits ...string) *Fleet {
	t.Helper()
	needs(t)
	return fleetBy(t, programs(t), "../../examples/quickstart/site.yaml", slices.Concat(noted, edits)...)
}

// fleetBy is fleet by the programs of a directory, with the quickstart of their release.
func fleetBy(t *testing.T, programs, quickstart string, edits ...string) *Fleet {
	t.Helper()
	f := example(t, programs, quickstart)
	f.edits(t, slices.Concat(calm, edits)...)
	f.raise(t)
	return f
}

// example is a working directory with the site of an example.
func example(t *testing.T, programs, site string) *Fleet {
	t.Helper()
	f := &Fleet{Dir: t.TempDir(), Bin: programs, Show: t.Output()}
	f.must(t, "init", ".")
	if err := f.UseExample(site); err != nil {
		t.Fatal(err)
	}
	return f
}

// raise builds and publishes the site, and serves the result.
func (f *Fleet) raise(t *testing.T) {
	t.Helper()
	f.build(t)
	f.publish(t)
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// needs skips the test on a machine that cannot boot others. A machine takes one
// processor of the host, so two tests run beside each other; with a third each takes longer.
func needs(t *testing.T) {
	t.Helper()
	t.Parallel()
	require.Root(t)
	require.Net(t)
	require.Tool(t, "qemu-system-x86_64", "busybox", "mmdebstrap", "mksquashfs", "sgdisk", "mkfs.ext4")
	if testing.Short() {
		t.Skip("short: virtual machines take minutes")
	}
}

// shared is a directory of the process, for what all tests use.
var shared string

func TestMain(m *testing.M) {
	var err error
	if shared, err = os.MkdirTemp("", "caisson-vm-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(shared); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// made builds the programs, once.
var made = sync.OnceValue(func() error {
	out, err := exec.Command("make", "-s", "-C", "../..", "build", "BIN="+shared).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make build: %w\n%s", err, out)
	}
	return nil
})

// programs returns the directory of the programs that this source makes.
func programs(t *testing.T) string {
	t.Helper()
	if err := made(); err != nil {
		t.Fatal(err)
	}
	return shared
}

// building lets one build at a time use the builder's cache.
var building sync.Mutex

func (f *Fleet) build(t *testing.T, more ...string) {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	f.must(t, append([]string{"build", "site.yaml", "--to", f.To(), "--key", "keys/release.key", "--fast"}, more...)...)
}

func (f *Fleet) publish(t *testing.T, more ...string) {
	t.Helper()
	f.must(t, append([]string{"publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key"}, more...)...)
}

func (f *Fleet) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := f.Caisson(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// boot starts a machine of the fleet by PXE.
func (f *Fleet) boot(t *testing.T, o machine.Options) *machine.Machine {
	t.Helper()
	m, err := f.Boot(t.Context(), o)
	return watched(t, m, err)
}

// start starts a machine that is given its kernel by hand.
func (f *Fleet) start(t *testing.T, o machine.Options) *machine.Machine {
	t.Helper()
	m, err := f.Start(t.Context(), o)
	return watched(t, m, err)
}

// watched ends the machine with the test, and shows its console when that failed.
func watched(t *testing.T, m *machine.Machine, err error) *machine.Machine {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.PowerCut()
		used, err := m.Used()
		t.Logf("machine %s had %.1f s of a processor, %v", m.Name, used.Seconds(), err)
		if t.Failed() {
			t.Logf("end of the console of %s:\n%s", m.Name, m.Console.Tail(60))
		}
	})
	return m
}

func waitFor(t *testing.T, m *machine.Machine, from int, markers ...string) string {
	t.Helper()
	ctx, cancel := step(t.Context(), m.Console)
	defer cancel()
	marker, err := m.Console.Wait(ctx, from, markers...)
	if err != nil {
		t.Fatal(err)
	}
	return marker
}

// login waits for sshd and for the service's first run.
func (f *Fleet) login(t *testing.T, m *machine.Machine) *machine.Session {
	t.Helper()
	ctx, cancel := step(t.Context(), m.Console)
	defer cancel()
	s, err := m.Login(ctx, "admin", f.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // the test is over
	if _, err := s.Run(ctx, Settled); err != nil {
		t.Fatal(err)
	}
	replays(t, s)
	return s
}

// silence is how long a machine prints nothing once it has come to its end, wherever that is: one
// that starts says each step, and a node that runs looks at its registry every five minutes.
const silence = 12 * time.Minute

// step bounds one step of a machine: by limit, and by the silence of its console; nil is limit alone.
func step(of context.Context, c *machine.Console) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeout(of, limit)
	if c == nil {
		return ctx, end
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		defer end()
		c.Silent(ctx, silence)
		cancel(fmt.Errorf("nothing was printed for %v", silence))
	}()
	return ctx, end
}

// becomes looks at something until it is so, for as long as one step of a machine with this console may take.
func becomes(c *machine.Console, so func() bool) bool {
	ctx, cancel := step(context.Background(), c)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(2 * time.Second):
		}
	}
	return true
}

func run(t *testing.T, s *machine.Session, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := s.Run(ctx, command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// last runs a command that takes the machine down. The connection may end before the
// answer, or not at all where the kernel dies: then its last words end it.
func last(t *testing.T, m *machine.Machine, s *machine.Session, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	from := m.Console.Len()
	go func() {
		_, _ = m.Console.Wait(ctx, from, "Kernel panic", "reboot: Restarting system", "reboot: Power down") // the machine went off, or the command has ended
		cancel()
	}()
	_, _ = s.Run(ctx, command) // what the machine does next shows whether it ran
}

func status(t *testing.T, s *machine.Session) spec.Status {
	t.Helper()
	var st spec.Status
	if err := json.Unmarshal([]byte(run(t, s, "sudo caisson-agent status -o json || [ $? -eq 3 ]")), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// reboot restarts the machine from inside and logs in again.
func (f *Fleet) reboot(t *testing.T, m *machine.Machine, s *machine.Session) *machine.Session {
	t.Helper()
	replays(t, s)
	from := m.Console.Len()
	last(t, m, s, "sudo systemctl reboot")
	waitFor(t, m, from, "caisson: entering the layer")
	return f.login(t, m)
}

// edits changes the site file by pairs of texts.
func (f *Fleet) edits(t *testing.T, pairs ...string) {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		f.edit(t, pair[0], pair[1])
	}
}

// edit changes the site file; a text that is not there is a broken test.
func (f *Fleet) edit(t *testing.T, from, to string) {
	t.Helper()
	name := filepath.Join(f.Dir, "site.yaml")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), from) {
		t.Fatalf("the site has no %q", from)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// byHand makes o a direct boot of the fleet's loader, with the registry and with
// the line that PXE would give it, so that no kexec is needed.
func (f *Fleet) byHand(t *testing.T, o machine.Options) machine.Options {
	t.Helper()
	o.Kernel, o.Initrd = f.loader(t)
	o.Append = f.line(t)
	o.Forwards = map[string]string{guestRegistry: f.registry}
	return o
}

// line is the kernel command line in the network boot's script.
func (f *Fleet) line(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(f.Dir, "netboot", "boot.ipxe"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(script), "BOOTIF=")
	_, line, _ = strings.Cut(line, " ")
	line, _, ok := strings.Cut(line, " || goto failed")
	if !ok {
		t.Fatalf("boot.ipxe starts no kernel:\n%s", script)
	}
	return line
}

// withDisk is the quickstart's node alpha with an empty state disk.
func (f *Fleet) withDisk(t *testing.T) machine.Options {
	t.Helper()
	o := machine.Options{Name: "alpha", MAC: "52:54:00:00:00:0a", UUID: "4c4c4544-0000-2010-8020-80c04f202020", Disk: filepath.Join(f.Dir, "state.raw")}
	if err := machine.MakeStateDisk(t.Context(), o.Disk, 1024, ""); err != nil {
		t.Fatal(err)
	}
	return o
}

// proven boots a node by hand until its generation is proven, and cuts its power:
// what is left is a disk with a last good generation.
func (f *Fleet) proven(t *testing.T) (machine.Options, spec.Status) {
	t.Helper()
	o := f.byHand(t, f.withDisk(t))
	m := f.start(t, o)
	s := f.login(t, m)
	st := status(t, s)
	if st.Health != "ok" || st.Sync != "current" {
		t.Fatalf("first boot: %+v", st)
	}
	run(t, s, "sync")
	m.PowerCut()
	return o, st
}

// loader joins the parts of the network boot for a direct one.
func (f *Fleet) loader(t *testing.T) (kernel, initrd string) {
	t.Helper()
	dir := filepath.Join(f.Dir, "netboot")
	initrd = filepath.Join(t.TempDir(), "loader.img") // there may be one of another release
	if err := machine.JoinInitrd(initrd, filepath.Join(dir, "initrd"), filepath.Join(dir, "site.cpio")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "kernel"), initrd
}

// sh runs a script with arguments.
func sh(t *testing.T, script string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", append([]string{"-ec", script, "sh"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// index returns the digest of the index that is current.
func (f *Fleet) index(t *testing.T) string {
	t.Helper()
	return oci.Digest(f.readIndex(t, "current"))
}

// layerOf returns the digest of an index's one layer, as nodes say it.
func (f *Fleet) layerOf(t *testing.T, index string) string {
	t.Helper()
	x, err := oci.ParseIndex(f.readIndex(t, index))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(x.Manifests, func(d oci.Descriptor) bool { return d.Platform != nil }) // others are not layers
	if i < 0 {
		t.Fatalf("index %s names no layer: %+v", index, x)
	}
	return x.Manifests[i].Digest
}

func (f *Fleet) readIndex(t *testing.T, reference string) []byte {
	t.Helper()
	r, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := r.Manifest(t.Context(), oci.RepoLayer, reference)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
