// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
)

// copyOf gives a fault a disk and a console of its own.
func copyOf(t *testing.T, o machine.Options, name string) machine.Options {
	t.Helper()
	from := o.Disk
	o.Name += "-" + strings.ReplaceAll(name, " ", "-")
	o.Disk = filepath.Join(filepath.Dir(from), o.Name+".raw")
	sh(t, `cp --sparse=always "$1" "$2"`, from, o.Disk)
	return o
}

// spoil runs a script in the file system of the node's state disk.
func spoil(t *testing.T, o machine.Options, script string) {
	t.Helper()
	if script != "" {
		sh(t, `mkdir "$1.d"; mount -o loop,offset=1048576 "$1" "$1.d"; cd "$1.d"; `+script+`; cd /; umount "$1.d"; rmdir "$1.d"`, o.Disk)
	}
}

// Faults of a node with generation 1 proven on its disk, and what may keep it from
// a newer one: it boots the last good, soon, and says why.

func (f *Fleet) noCard(t *testing.T, node machine.Options) {
	o := copyOf(t, node, "no-card")
	o.NoCard = true
	m := f.start(t, o)
	waitFor(t, m, 0, "caisson: booting the last good overlay")
	waitFor(t, m, 0, "alpha login:", "Reached target \x1b[0;1;39mmulti-user.target") // systemd gives a console up that is not there after 90 s
}

// slowRegistry has a newer layer, and sends it at a byte a second.
func (f *Fleet) slowRegistry(t *testing.T, node machine.Options, generation uint64) {
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	o := copyOf(t, node, "slow")
	o.Forwards = map[string]string{guestRegistry: slowBlobs(t, f.registry)}
	m := f.start(t, o)
	waitFor(t, m, 0, fmt.Sprintf("caisson: overlay of node alpha, generation %d", generation+1))
	waitFor(t, m, 0, fmt.Sprintf("caisson: booting the last good overlay, generation %d", generation))
	s := f.login(t, m)
	if st := status(t, s); st.Source != "cached" || st.Sync != "behind" || st.Generation != generation || st.Health != "ok" {
		t.Errorf("with a slow registry: %+v", st)
	}
}

// slowBlobs serves a registry's manifests as fast as they come and its blobs at a
// byte a second, and returns its address.
func slowBlobs(t *testing.T, registry string) string {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry})
	proxy.ModifyResponse = func(r *http.Response) error {
		if strings.Contains(r.Request.URL.Path, "/blobs/") {
			r.Body = slowBody{r.Body, r.Request.Context()}
		}
		return nil
	}
	proxy.FlushInterval = -1 // each byte when it comes
	s := httptest.NewServer(proxy)
	t.Cleanup(s.CloseClientConnections)
	return s.Listener.Addr().String()
}

// slowBody is a body that comes at a byte a second.
type slowBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b slowBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		return b.ReadCloser.Read(p[:1])
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}
