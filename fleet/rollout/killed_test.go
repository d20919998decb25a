// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// asDriver has the order of a test process that takes one step.
const asDriver = "CAISSON_TEST_DRIVER"

// order is what such a process knows.
type order struct {
	Ref, Rule, Value string
	Key              []byte
	Names            []string
	Now              time.Time
	Reports          map[string]report.Standing
}

// driveAs takes a step as another process.
func driveAs(t *testing.T, text string) {
	var o order
	must(t, json.Unmarshal([]byte(text), &o))
	key, err := x509.ParseECPrivateKey(o.Key)
	must(t, err)
	f := &fleet{t: t, now: o.Now, key: key, rule: o.Rule, value: o.Value, names: o.Names}
	f.at(o.Ref)
	d := f.driver()
	d.Reports = func(context.Context, report.Asked) (map[string]report.Standing, error) { return o.Reports, nil }
	if moved, what, err := d.Step(t.Context()); err != nil || !moved {
		t.Errorf("moved %v, %+v, %v", moved, what, err)
	}
}

// A driver whose process is killed at any request of a wave leaves what another one goes
// on with.
func TestADriverThatIsKilled(t *testing.T) {
	require.Slow(t)
	if text := os.Getenv(asDriver); text != "" {
		driveAs(t, text)
		return
	}
	l := newLine(t, registrytest.WithReferrers(t))
	f := newFleet(t, l.at+"/metal", 4, fourNodes)
	key, err := x509.MarshalECPrivateKey(f.key)
	must(t, err)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for at := 20; ; at += 5 + random.IntN(12) {
		l.ahead = time.Until(f.now)
		f.round++
		_, err := f.start(fmt.Sprint(1 + f.round))
		must(t, err)
		text, err := json.Marshal(order{Ref: l.at + "/metal", Rule: f.rule, Value: f.value, Key: key, Names: f.names, Now: f.now, Reports: f.reports()})
		must(t, err)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), asDriver+"="+string(text))
		must(t, cmd.Start())
		mend := l.cutAt(at, func() { _ = cmd.Process.Kill() }) // it may have ended by itself
		err = cmd.Wait()
		mend()
		f.now = f.now.Add(6 * time.Hour)
		l.ahead = time.Until(f.now)
		f.tick(0)
		must(t, f.finish())
		f.want(map[string]int{f.value: 4})
		for name, n := range l.moves() {
			if n != 1 {
				t.Errorf("killed at request %d: node %s moved %d times", at, name, n)
			}
		}
		if t.Failed() {
			t.Fatalf("killed at request %d: %v", at, err)
		}
		if err == nil {
			break // it has fewer requests
		}
	}
	if f.round < 3 {
		t.Errorf("it was killed %d times", f.round-1)
	}
}
