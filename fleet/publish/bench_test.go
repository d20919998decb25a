// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"fmt"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
)

// many are overlays of about 4 KiB.
func many(b *testing.B, n int) []work {
	b.Helper()
	var todo []work
	for i := range n {
		o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("node-%06d", i)}}
		for k := range 60 {
			o.Items.Sysctl = append(o.Items.Sysctl, spec.Sysctl{Key: fmt.Sprintf("net/ipv4/conf/eth%d/forwarding", k), Value: fmt.Sprint(i)})
		}
		doc, err := spec.Encode(o)
		if err != nil {
			b.Fatal(err)
		}
		todo = append(todo, work{name: o.Node, doc: doc, generation: 1})
	}
	return todo
}

func benchPublisher(b *testing.B, ref string) (*Publisher, Policy, *index.Index) {
	b.Helper()
	key, err := sign.Generate()
	if err != nil {
		b.Fatal(err)
	}
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		b.Fatal(err)
	}
	p := &Publisher{Registry: r, Signers: []crypto.Signer{key}, Now: start, Say: b.Logf}
	policy := Policy{Fleet: "metal-a", Threshold: 1, Lifetime: time.Hour, Operator: []sign.Verifier{sign.VerifierOf(key)}}
	return p, policy, index.New(spec.FleetIndex{Fleet: "metal-a"})
}

// BenchmarkSign signs overlays and asks the node's decision about each.
func BenchmarkSign(b *testing.B) {
	p, policy, x := benchPublisher(b, "oci:"+b.TempDir())
	todo := many(b, 2000)
	for b.Loop() {
		for i := range todo {
			todo[i].bundles = nil
		}
		if err := p.signNodes(context.Background(), policy, &x.Root, todo); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(todo)), "ns/node")
}

// BenchmarkPushLayout pushes new overlays into a layout, in one batch.
func BenchmarkPushLayout(b *testing.B) {
	todo := many(b, 2000)
	for b.Loop() {
		p, policy, x := benchPublisher(b, "oci:"+b.TempDir())
		for i := range todo {
			todo[i].bundles = nil
		}
		if err := pushAll(b, p, policy, x, todo); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(todo)), "ns/node")
}

// BenchmarkPushServer pushes new overlays to Debian's docker-registry on this machine.
func BenchmarkPushServer(b *testing.B) {
	addr := registrytest.Distribution(b)
	n := 0
	for b.Loop() {
		p, policy, x := benchPublisher(b, fmt.Sprintf("%s/fleet-%d", addr, n))
		n++
		todo := many(b, 200)
		if err := pushAll(b, p, policy, x, todo); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*200), "ns/node")
}

func pushAll(b *testing.B, p *Publisher, policy Policy, x *index.Index, todo []work) error {
	batch, err := p.Registry.Batch()
	if err != nil {
		b.Fatal(err)
	}
	defer batch.Close() // flushed before
	v := &view{index: index.New(spec.FleetIndex{Fleet: "metal-a"})}
	return p.write(context.Background(), policy, v, batch, &change{index: x, todo: todo}, newResult(x.Root))
}
