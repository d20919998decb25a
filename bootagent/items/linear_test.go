// SPDX-License-Identifier: Apache-2.0

package items

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// many are n items of each kind that a site has many of, on a machine in a directory, with
// what follows when they are applied, looked at, left alone and taken back.
func many(t testing.TB, root string, n int) []func() Result {
	t.Helper()
	for _, dir := range []string{"etc/security/limits.d", "proc/sys/net", "srv", "proc/self"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/mountinfo", "22 1 0:21 / / rw,relatime - overlay overlay rw\n")
	want := spec.Items{Perm: &spec.Perm{}}
	for n := range n {
		key, srv := fmt.Sprintf("net/k%d", n), fmt.Sprintf("srv/%d", n)
		write("proc/sys/"+key, "0\n")
		write(srv, "")
		want.Sysctl = append(want.Sysctl, spec.Sysctl{Key: key, Value: "1"})
		want.Files = append(want.Files, spec.File{Path: fmt.Sprintf("/etc/many/%d/f%d", n%5, n), Content: "x"})
		want.Limits = append(want.Limits, spec.Limit{ID: fmt.Sprint(n), Domain: fmt.Sprintf("user%d", n), Type: "soft", Item: "nofile", Value: "1024"})
		want.Perm.Paths = append(want.Perm.Paths, spec.PermPath{Path: filepath.Join(root, srv), Mode: "0640"})
	}
	j, err := journal.Open(filepath.Join(root, "journal"), testScopes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() }) // the test is over
	o := Options{Journal: j, Scopes: testScopes, State: filepath.Join(root, "state"),
		Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Etc: filepath.Join(root, "etc"), Lib: filepath.Join(root, "lib"), Dev: filepath.Join(root, "dev")}
	items, none := Table(want, o), Table(spec.Items{}, o)
	return []func() Result{
		func() Result { return Reconcile(t.Context(), items, j) },
		func() Result { return Look(t.Context(), items, nil) },
		func() Result { return Transact(t.Context(), items, items, j, nil) },
		func() Result { return Reconcile(t.Context(), none, j) },
	}
}

func runMany(t testing.TB, steps []func() Result) {
	t.Helper()
	for n, step := range steps {
		if r := step(); r.Err != nil || len(r.Drift) > 0 {
			t.Fatalf("step %d: %d left, %v", n, len(r.Drift), r.Err)
		}
	}
}

// most is how much more twice the items may take.
const most = 2.3

// TestTwiceTheItemsAllocateTwice counts bytes: what is decoded, read and compared again for
// each item allocates for each.
func TestTwiceTheItemsAllocateTwice(t *testing.T) {
	require.Root(t)
	allocated := func(n int) float64 {
		steps := many(t, t.TempDir(), n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		runMany(t, steps)
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(10) // what is made once
	one, two := allocated(100), allocated(200)
	if t.Logf("%.1f MB, %.1f MB", one/1e6, two/1e6); two > most*one {
		t.Errorf("twice the items allocate %.1f times as much", two/one)
	}
}

// TestTwiceTheItemsCallTwice counts system calls with strace(1).
func TestTwiceTheItemsCallTwice(t *testing.T) {
	const env = "CAISSON_MANY"
	if n, err := strconv.Atoi(os.Getenv(env)); err == nil {
		runMany(t, many(t, t.TempDir(), n))
		return
	}
	require.Root(t)
	require.Tool(t, "strace")
	count := func(n int) (calls float64) {
		out := filepath.Join(t.TempDir(), "calls")
		cmd := exec.Command("strace", "-f", "-c", "-U", "calls,name", "-e", "trace=file,desc,fsync,fdatasync", "-o", out, os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", env, n))
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) != 2 || f[1] == "total" || strings.HasPrefix(f[1], "epoll_") {
				continue
			}
			if n, err := strconv.Atoi(f[0]); err == nil {
				calls += float64(n)
			}
		}
		return calls
	}
	none, one, two := count(0), count(50), count(100)
	if t.Logf("%.0f, %.0f, %.0f calls", none, one, two); none == 0 || two-none > most*(one-none) {
		t.Errorf("twice the items make %.1f times as many system calls", (two-none)/(one-none))
	}
}

// Nine thousand items of four kinds: applied, looked at, changed to the same and taken back.
// Etc is on a tmpfs, as on a node.
func BenchmarkMany9000(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		if err := unix.Access("/dev/shm", unix.W_OK); err == nil {
			if dir, err = os.MkdirTemp("/dev/shm", "caisson-many-"); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = os.RemoveAll(dir) }) // as b.TempDir
		}
		steps := many(b, dir, 9000/4)
		before := processorTime(b, unix.RUSAGE_SELF)
		b.StartTimer()
		runMany(b, steps)
		b.ReportMetric((processorTime(b, unix.RUSAGE_SELF) - before).Seconds(), "s-of-processor")
	}
}
