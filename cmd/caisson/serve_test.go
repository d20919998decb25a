// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// TestServe serves a layout until a signal ends it.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	r, err := registry.Open("oci:"+dir, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := oci.Describe("text/plain", []byte("hello"))
	if err := r.PutData(t.Context(), "layer", d); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	h, err := registry.Handler(dir)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- httpserver.Serve(ctx, l, h, httpserver.Options{}) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/v2/any/prefix/layer/blobs/" + d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "hello" {
		t.Errorf("GET = %q, %v", body, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("serve ended with %v", err)
	}
}
