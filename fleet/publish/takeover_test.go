// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/test/require"
)

// asPublisher has the order of a test process that is a publisher of its own.
const asPublisher = "CAISSON_TEST_PUBLISHER"

// order is what such a process does.
type order struct {
	Ref               string
	Operator, Release []byte
	Value             string
	Beat, Hold        time.Duration
}

func TestMain(m *testing.M) {
	if text := os.Getenv(asPublisher); text != "" {
		if err := publishAs(text); err != nil {
			fmt.Println("refused:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func publishAs(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	var keys [2]*ecdsa.PrivateKey
	for i, raw := range [][]byte{o.Operator, o.Release} {
		k, err := x509.ParseECPrivateKey(raw)
		if err != nil {
			return err
		}
		keys[i] = k
	}
	r, err := registry.Open(o.Ref, registry.Options{PlainHTTP: true})
	if err != nil {
		return err
	}
	p := &Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{keys[0]}, Now: time.Now().UTC().Truncate(time.Second), NewFleet: true, Say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }},
		Author: "eve@host"}
	SetPace(p, reserve.Pace{Beat: o.Beat, Hold: o.Hold, Look: time.Second, Dead: time.Minute})
	policy := published.Policy{Fleet: "metal-a", Threshold: 1, Lifetime: 30 * 24 * time.Hour,
		Operator: []sign.Verifier{sign.VerifierOf(keys[0])}, Release: []sign.Verifier{sign.VerifierOf(keys[1])}}
	result, err := p.Publish(context.Background(), policy, (&fleet{}).Nodes("", o.Value), Options{})
	if err == nil {
		fmt.Println("generation", result.Generation)
	}
	return err
}

// process starts a publisher in a process of its own.
func (f *fleet) process(t *testing.T, ref, value string, beat, hold time.Duration) (cmd *exec.Cmd, out *strings.Builder) {
	t.Helper()
	o := order{Ref: ref, Value: value, Beat: beat, Hold: hold}
	var errs [2]error
	o.Operator, errs[0] = x509.MarshalECPrivateKey(f.Operator)
	o.Release, errs[1] = x509.MarshalECPrivateKey(f.Release)
	text, err := json.Marshal(o)
	if err := errors.Join(errs[0], errs[1], err); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asPublisher+"="+string(text))
	out = &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have gone by itself
	return cmd, out
}

// waiting returns a publisher that counts another as dead soon.
func (f *fleet) waiting(t *testing.T, ref string, dead time.Duration) *Publisher {
	p := f.at(t, ref)
	SetPace(p, reserve.Pace{Beat: dead / 10, Hold: dead / 2, Look: dead / 20, Dead: dead})
	return p
}

// isReserving is the first write of fleet:index, which gives a generation out.
func isReserving(q *http.Request) bool {
	return q.Method == http.MethodPut && strings.HasSuffix(q.URL.Path, "/fleet/manifests/index")
}

// moments are where a publisher is met: before and after its generation is given out.
var moments = map[string]func(*http.Request) bool{"before its number": isReserving, "with its number": isOverlay}

// begun is a fleet of its own below a server, with a first generation. dead is how long a
// publisher is silent there that another one takes the place of: by far longer than that
// generation took, or a machine with other work would make the living dead.
func begun(t *testing.T, backend, moment string) (f *fleet, prefix string, dead time.Duration) {
	t.Helper()
	f, prefix = newFleet(t), "/"+strings.ReplaceAll(moment, " ", "-")
	began := time.Now()
	if _, err := f.at(t, backend+prefix).Publish(t.Context(), f.Policy, f.Nodes("", "1"), Options{}); err != nil {
		t.Fatal(err)
	}
	return f, prefix, max(10*time.Second, 10*time.Since(began))
}

// takes has another publisher take the place of one that was met at generation 2. Nobody
// waits for its own end, so its requests may take their time.
func (f *fleet) takes(t *testing.T, at string, dead time.Duration) {
	t.Helper()
	p := f.at(t, at)
	SetPace(p, reserve.Pace{Beat: 30 * time.Second, Hold: 5 * time.Minute, Look: dead / 3, Dead: dead})
	r, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "3"), Options{})
	if err != nil || r.Generation != 3 {
		t.Fatalf("in its place: %+v, %v", r, err)
	}
}

// A publisher that was killed keeps others out until it was silent for long enough.
// No generation of it is given out again.
func TestKilledPublisher(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	servers(t, func(t *testing.T, backend string) {
		for moment, reached := range moments {
			t.Run(moment, func(t *testing.T) {
				t.Parallel()
				f, prefix, dead := begun(t, backend, moment)
				at := backend + prefix
				here, killed := make(chan struct{}), make(chan struct{})
				var once sync.Once
				ref := through(t, backend, func(q *http.Request) {
					if reached(q) {
						once.Do(func() { close(here) })
						<-killed
						panic(http.ErrAbortHandler) // its process ended here
					}
				})
				cmd, out := f.process(t, strings.TrimSuffix(ref, "/metal-a")+prefix, "2", time.Second, time.Minute)
				defer close(killed)
				await(t, here, out)
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // killed
				f.takes(t, at, dead)
				if report, err := verify.Fleet(t.Context(), &f.at(t, at).Reader, f.Policy, nil, false); err != nil || !report.OK() {
					t.Errorf("afterwards: %+v, %v", report, err)
				}
				if tags, err := reservations(t, f.at(t, at)); err != nil || len(tags) > 0 {
					t.Errorf("reservations that stayed: %q, %v", tags, err)
				}
			})
		}
	})
}

// reservations lists the intents that are still there.
func reservations(t *testing.T, p *Publisher) ([]string, error) {
	t.Helper()
	tags, err := p.Registry.Tags(t.Context(), oci.RepoFleet)
	return slices.DeleteFunc(tags, func(tag string) bool { return !reserve.IsIntent(tag) }), err
}

func await(t *testing.T, here chan struct{}, out *strings.Builder) {
	t.Helper()
	select {
	case <-here:
	case <-time.After(5 * time.Minute):
		t.Fatalf("the publisher did not come so far: %s", out)
	}
}

// suspend stops a process and waits until none of its threads runs.
func suspend(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for range 6000 {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(tasks, func(name string) bool {
			stat, err := os.ReadFile(name)
			return err == nil && !bytes.Contains(stat, []byte(") T ")) // a thread that is gone does not run
		}) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("process %d does not stop", p.Pid)
}

// A publisher that was suspended while another took its place writes nothing more
// when it goes on.
func TestSuspendedPublisher(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	servers(t, func(t *testing.T, backend string) {
		for moment, reached := range moments {
			t.Run(moment, func(t *testing.T) {
				t.Parallel()
				f, prefix, dead := begun(t, backend, moment)
				at := backend + prefix
				here, started := make(chan struct{}), make(chan struct{})
				var once sync.Once
				var cmd *exec.Cmd
				ref := through(t, backend, func(q *http.Request) {
					if reached(q) { // what it has sent arrives, its next writes do not
						<-started
						once.Do(func() {
							body, err := io.ReadAll(q.Body)
							q.Body = io.NopCloser(bytes.NewReader(body))
							if err := errors.Join(err, suspend(cmd.Process)); err != nil {
								t.Error(err)
							}
							close(here)
						})
					}
				})
				var out *strings.Builder
				cmd, out = f.process(t, strings.TrimSuffix(ref, "/metal-a")+prefix, "2", dead/3, dead-time.Second) // which is over when another has taken its place
				close(started)
				await(t, here, out)
				f.takes(t, at, dead)
				before := tagged(t, f.at(t, at))
				if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), reserve.ErrLost.Error()) {
					t.Errorf("it went on: %v: %s", err, out)
				}
				if after := tagged(t, f.at(t, at)); after != before {
					t.Errorf("it wrote over the newer generation:\n%s\n%s", before, after)
				}
				if report, err := verify.Fleet(t.Context(), &f.at(t, at).Reader, f.Policy, nil, false); err != nil || !report.OK() {
					t.Errorf("afterwards: %+v, %v", report, err)
				}
			})
		}
	})
}

// A publisher that could not renew its reservation leaves it to those who count it as dead:
// what it sent last may still be on its way.
func TestLostReservationStays(t *testing.T) {
	servers(t, func(t *testing.T, backend string) {
		f := newFleet(t)
		p := f.at(t, backend+"/metal-a")
		SetPace(p, reserve.Pace{Beat: time.Hour, Hold: time.Nanosecond, Look: time.Second, Dead: time.Minute})
		if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "1"), Options{}); !errors.Is(err, reserve.ErrLost) {
			t.Fatalf("without a renewal: %v", err)
		}
		tags, err := reservations(t, p)
		if err != nil || len(tags) != 1 {
			t.Fatalf("reservations that stayed: %q, %v", tags, err)
		}
		if s, err := Reserver(p).Standing(t.Context()); err != nil || len(s) != 1 || !s[0].Renewed || s[0].Reserves != 1 {
			t.Errorf("others find %+v, %v", s, err)
		}
	})
}

// tagged returns what the tags lead to that nodes and publishers begin with.
func tagged(t *testing.T, p *Publisher) (list string) {
	t.Helper()
	for _, ref := range [][2]string{{oci.RepoFleet, "index"}, {oci.RepoFleet, "current"}, {oci.RepoNode, "n0"}} {
		resp, err := p.Registry.Source().Manifest(t.Context(), ref[0], ref[1], "")
		if err != nil {
			t.Fatal(err)
		}
		list += ref[1] + " " + resp.Digest + "\n"
	}
	return list
}

// isRewritten reports the answer of docker-registry 2.8 to those who read a tag while
// it is put again.
func isRewritten(err error) bool {
	return err != nil && strings.Contains(err.Error(), "500 Internal Server Error")
}

// One of ten is killed at work: the others get through sooner or later, each
// with a generation of its own.
func TestOneOfTenKilled(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	servers(t, func(t *testing.T, backend string) {
		f, prefix, dead := begun(t, backend, "one of ten")
		at := backend + prefix
		here, killed := make(chan struct{}), make(chan struct{})
		var once sync.Once
		ref := through(t, backend, func(q *http.Request) {
			if isOverlay(q) {
				once.Do(func() { close(here) })
				<-killed
				panic(http.ErrAbortHandler) // its process ended here
			}
		})
		cmd, out := f.process(t, strings.TrimSuffix(ref, "/metal-a")+prefix, "dead", time.Second, time.Minute)
		defer close(killed)
		await(t, here, out)
		var mu sync.Mutex
		given := map[uint64]string{}
		var group sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		for i := range 9 {
			group.Go(func() {
				for turn := 1; ; turn++ {
					p, began := f.waiting(t, at, dead), time.Now()
					value := fmt.Sprintf("%d of turn %d", i, turn) // another one: an attempt that failed may have put what it had
					r, err := p.Publish(ctx, f.Policy, f.Nodes("", value, value), Options{})
					if errors.Is(err, reserve.ErrTaken) || errors.Is(err, reserve.ErrLost) || isRewritten(err) {
						select {
						case <-ctx.Done():
							t.Errorf("publisher %d did not get through", i)
							return
						case <-time.After(rand.N(time.Duration(turn) * time.Since(began))): // or they meet again, however slow the machine is
						}
						continue
					}
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					} else if _, twice := given[r.Generation]; twice || r.Generation < 3 { // 2 may be the killed one's
						t.Errorf("generation %d was given out before", r.Generation)
					} else {
						given[r.Generation] = r.Published[0].Overlay
					}
					return
				}
			})
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		group.Wait()
		if len(given) != 9 {
			t.Errorf("%d of 9 are done: %v", len(given), given)
		}
		p := f.at(t, at)
		found, err := p.Find(t.Context(), f.Policy)
		if err != nil {
			t.Fatal(err)
		}
		for number, overlay := range given {
			past, err := found.Past(t.Context(), published.Generation{Epoch: 0, Number: number})
			if err != nil {
				t.Errorf("generation %d: %v", number, err)
				continue
			}
			if row, _, err := past.Row(t.Context(), "n0"); err != nil || row.Overlay != overlay {
				t.Errorf("generation %d has %s, %v, was given out as %s", number, row.Overlay, err, overlay)
			}
		}
	})
}
