// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestACutRequest: a client that is cut off in the middle of a manifest leaves its tag as it
// was, as it does in registries that are used.
func TestACutRequest(t *testing.T) {
	const manifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`
	addr := WithReferrers(t)
	at := "http://" + addr + "/v2/fleet/manifests/n0"
	whole, err := http.NewRequestWithContext(t.Context(), http.MethodPut, at, strings.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	whole.Header.Set("Content-Type", "application/vnd.oci.image.index.v1+json")
	answer, err := http.DefaultClient.Do(whole)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // nothing of it is read
	if answer.StatusCode != http.StatusCreated {
		t.Fatal(answer.Status)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // nothing more is written to it
	fmt.Fprintf(conn, "PUT /v2/fleet/manifests/n0 HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n{", addr, len(manifest))
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	cut, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = cut.Body.Close() // nothing of it is read
	if cut.StatusCode != http.StatusBadRequest {
		t.Errorf("the registry says %s of a manifest that was cut", cut.Status)
	}
	now, err := http.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Body.Close() // it was read whole, or says so
	if kept, err := io.ReadAll(now.Body); err != nil || string(kept) != manifest {
		t.Errorf("under the tag: %q, %v", kept, err)
	}
}
