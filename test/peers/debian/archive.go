// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Archive is a proxy on the loopback that keeps what it fetched: files of packages, which never
// change, for good, and indexes for its own life, so that all peers see one state of an archive.
type Archive struct {
	URL    string
	server http.Server
	pool   string // for good
	lists  string // for its own life
}

// NewArchive starts one that keeps indexes below dir, which ends with it.
func NewArchive(dir string) (*Archive, error) {
	pool, err := cached("archive")
	if err != nil {
		return nil, err
	}
	a := &Archive{pool: pool, lists: filepath.Join(dir, "lists")}
	if err := errors.Join(os.MkdirAll(a.pool, 0o755), os.MkdirAll(a.lists, 0o755)); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a.URL = "http://" + listener.Addr().String()
	a.server.Handler = http.HandlerFunc(a.answer)
	go a.server.Serve(listener) // ends with Close
	return a, nil
}

// Close ends it.
func (a *Archive) Close() error { return a.server.Close() }

func (a *Archive) answer(w http.ResponseWriter, req *http.Request) {
	at := a.lists
	if strings.Contains(req.URL.Path, "/pool/") {
		at = a.pool
	}
	name := filepath.Join(at, fmt.Sprintf("%x", sha256.Sum256([]byte(req.URL.Path)))) // of any mirror
	if _, err := os.Stat(name); err != nil {
		if status, err := fetch(req.Context(), req.URL.String(), name); err != nil {
			http.Error(w, err.Error(), status)
			return
		}
	}
	http.ServeFile(w, req, name)
}

// fetch brings a file of an archive under its name.
func fetch(ctx context.Context, url, name string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return http.StatusBadRequest, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return http.StatusBadGateway, err
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	file, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return http.StatusInternalServerError, err
	}
	defer os.Remove(file.Name()) // it has its name, or is half
	_, err = io.Copy(file, resp.Body)
	if err := errors.Join(err, file.Close()); err != nil {
		return http.StatusBadGateway, err
	}
	return 0, os.Rename(file.Name(), name)
}
