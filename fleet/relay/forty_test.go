// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
)

// TestFortyNodes counts what a registry is asked by forty nodes that boot at once and ask each five
// minutes for an hour, without a relay and through one: an image crosses once in the place of forty
// times, and each node's own overlay and polls cross as often. docs/scale.md has the figures.
func TestFortyNodes(t *testing.T) {
	const nodes, polls, size = 40, 12, 8 << 20
	measure := func(relayed bool) (requests int, sent int64) {
		r := newRack(t, 1<<30)
		from := r.far
		if relayed {
			from = r.url
		}
		_, image := r.put(size)
		digests := make([]string, nodes)
		for i := range digests {
			digests[i] = r.publish(fmt.Sprint("n", i), strings.Repeat(fmt.Sprintf("%04d", i), 1000))
		}
		r.mu.Lock()
		r.asked = nil
		r.mu.Unlock()
		get := func(path string, want int, headers ...string) []byte {
			resp, data, err := r.getFrom(from, path, headers...)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s: %v, %v", path, resp, err)
			}
			return data
		}
		all := func(act func(i int)) {
			var group sync.WaitGroup
			for i := range nodes {
				group.Go(func() { act(i) })
			}
			group.Wait()
		}
		all(func(i int) {
			m, err := oci.ParseManifest(get(fmt.Sprint("node/manifests/n", i), http.StatusOK))
			if err != nil {
				t.Error(err)
				return
			}
			for _, l := range m.Layers {
				get("node/blobs/"+l.Digest, http.StatusOK)
			}
			get("layer/blobs/"+image, http.StatusOK)
		})
		for range polls {
			r.later(5 * time.Minute)
			all(func(i int) {
				get(fmt.Sprint("node/manifests/n", i), http.StatusNotModified, "If-None-Match", `"`+digests[i]+`"`)
			})
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.asked), r.sent.Load()
	}
	requests, sent := measure(false)
	less, fewer := measure(true)
	t.Logf("without a relay %d requests and %d bytes, through one %d and %d", requests, sent, less, fewer)
	if over := sent - nodes*size; over < 0 || over > nodes*16<<10 {
		t.Errorf("without a relay %d bytes beside the images", over)
	}
	if over := fewer - size; over < 0 || over > nodes*16<<10 {
		t.Errorf("through a relay %d bytes beside the image", over)
	}
	if less > requests || less < nodes*polls {
		t.Errorf("the registry is asked %d times through a relay, %d times without", less, requests)
	}
}
