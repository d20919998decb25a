// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/kube/service"
)

// rows are those of a fleet's service.
type rows struct {
	service.Source
	n int
}

func (r rows) Nodes(context.Context) (out []view.Line, _ error) {
	for i := range r.n {
		out = append(out, view.Line{Name: fmt.Sprintf("n%d", i), Condition: view.Fine})
	}
	return out, nil
}

// written counts what is written, and has nothing.
type written struct {
	client.Client
	n atomic.Int64
}

func (*written) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (w *written) Create(context.Context, client.Object, ...client.CreateOption) error {
	w.n.Add(1)
	return nil
}

// TestDrainTimeout: no drain is without a limit, which 0 would be to kubectl.
func TestDrainTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{0, -time.Second} {
		err := run(t.Context(), &rest.Config{}, options{drains: true, drain: drainPolicy(timeout)})
		if err == nil || !strings.Contains(err.Error(), "--drain-timeout "+timeout.String()+": a drain has a limit: write a time above 0") {
			t.Errorf("%s: %v", timeout, err)
		}
	}
}

// TestPace: --pace is what all fleets of the process write in a second together.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pace, many, seconds = 20, 1000, 10
		w := &written{}
		o := options{pace: pace}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		mirrors := o.mirrors(service.Mirror{Client: w, Reader: w, Conditions: true, Wrote: func(string, string) {}}, map[string]service.Source{"metal-a": rows{n: many}, "metal-b": rows{n: many}, "metal-c": rows{n: many}})
		for _, m := range mirrors {
			wg.Go(func() { _ = m.Copy(ctx) }) // it is stopped in the middle
		}
		time.Sleep(seconds*time.Second + time.Millisecond)
		if n := w.n.Load(); n != pace*seconds+1 || len(mirrors) != 3 {
			t.Errorf("%d objects were written in %d seconds, by %d mirrors", n, seconds, len(mirrors))
		}
		stop()
		wg.Wait()
	})
}
