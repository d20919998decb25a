// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"context"
	"crypto"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fleettest"
	"github.com/caisson-os/caisson/test/registrytest"
)

// many are overlays of about 4 KiB, made whenever they are asked for, as a site's are.
func many(b *testing.B, n int) []Work {
	b.Helper()
	todo := make([]Work, n)
	for i := range todo {
		todo[i].Name, todo[i].Generation = fmt.Sprintf("node-%06d", i), 1
		if err := SetDocument(&todo[i], func() ([]byte, error) { return numbered(i) }); err != nil {
			b.Fatal(err)
		}
	}
	return todo
}

func numbered(i int) ([]byte, error) { return withValue(i, i) }

func withValue(i, value int) ([]byte, error) {
	o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("node-%06d", i)}}
	for k := range 60 {
		o.Items.Sysctl = append(o.Items.Sysctl, spec.Sysctl{Key: fmt.Sprintf("net/ipv4/conf/eth%d/forwarding", k), Value: fmt.Sprint(value)})
	}
	return spec.Encode(o)
}

func benchPublisher(b *testing.B, ref string) (*Publisher, published.Policy, *index.Index) {
	b.Helper()
	key, err := sign.Generate()
	if err != nil {
		b.Fatal(err)
	}
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		b.Fatal(err)
	}
	p := &Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{key}, Now: fleettest.Start, Say: b.Logf}}
	policy := published.Policy{Fleet: "metal-a", Threshold: 1, Lifetime: time.Hour, Operator: []sign.Verifier{sign.VerifierOf(key)}}
	return p, policy, index.New(spec.FleetIndex{Fleet: "metal-a"})
}

// BenchmarkSign signs overlays and asks the node's decision about each.
func BenchmarkSign(b *testing.B) {
	p, policy, x := benchPublisher(b, "oci:"+b.TempDir())
	todo := many(b, 2000)
	for b.Loop() {
		for i := range todo {
			todo[i].Valid = nil
		}
		if err := SignNodes(p, context.Background(), policy, &x.Root, todo); err != nil {
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
		if err := PushAll(b, p, policy, x, slices.Clone(todo)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(todo)), "ns/node")
}

// BenchmarkPushServer signs overlays and pushes them to Debian's docker-registry on this
// machine, beside a client that only writes the same: it knows what is there, asks nothing
// and signs nothing.
func BenchmarkPushServer(b *testing.B) {
	for _, nodes := range []int{500, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { pushServer(b, nodes) })
	}
}

func pushServer(b *testing.B, nodes int) {
	addr := registrytest.Distribution(b)
	var ours, raw time.Duration
	for n := 0; b.Loop(); n++ {
		todo := many(b, nodes)
		p, policy, x := benchPublisher(b, fmt.Sprintf("%s/fleet-%d", addr, n))
		began, pushed := time.Now(), slices.Clone(todo)
		if err := PushAll(b, p, policy, x, pushed); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(began)
		began = time.Now()
		if err := putRaw(b.Context(), fmt.Sprintf("http://%s/v2/raw-%d/node", addr, n), &todo[0]); err != nil {
			b.Fatal(err)
		}
		if err := ForEach(b.Context(), todo[1:], func(ctx context.Context, w *Work) error {
			return putRaw(ctx, fmt.Sprintf("http://%s/v2/raw-%d/node", addr, n), w)
		}); err != nil {
			b.Fatal(err)
		}
		raw += time.Since(began)
	}
	b.ReportMetric(float64(b.N*nodes)/ours.Seconds(), "nodes/s")
	b.ReportMetric(raw.Seconds()/ours.Seconds(), "of-raw-rate")
}

// putRaw writes what pushNode does: two requests a blob, and one a tag.
func putRaw(ctx context.Context, repo string, w *Work) error {
	doc, err := Document(w)
	if err != nil {
		return err
	}
	raw, blobs := oci.OverlayManifest(doc, w.Bundles...)
	send := func(method, url, mediaType string, body []byte) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", mediaType)
		resp, err := rawClient.Do(req)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return nil, err
		}
		if resp.StatusCode/100 != 2 {
			return nil, fmt.Errorf("%s %s: %s", method, url, resp.Status)
		}
		return resp, resp.Body.Close()
	}
	for _, d := range blobs {
		if d.Digest == oci.Digest(oci.Empty) && w.Name != "node-000000" {
			continue // all nodes share it
		}
		resp, err := send(http.MethodPost, repo+"/blobs/uploads/", "application/octet-stream", nil)
		if err != nil {
			return err
		}
		if _, err := send(http.MethodPut, resp.Header.Get("Location")+"&digest="+d.Digest, "application/octet-stream", d.Data); err != nil {
			return err
		}
	}
	_, err = send(http.MethodPut, repo+"/manifests/"+w.Name, oci.MediaTypeManifest, raw)
	return err
}

// rawClient keeps a connection for each that is in hand at a time.
var rawClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
