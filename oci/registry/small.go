// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/caisson-os/caisson/oci"
)

// putData stores a blob that is in memory.
func (s *server) putData(ctx context.Context, repo string, d oci.Descriptor) error {
	empty := d.Digest == oci.Digest(oci.Empty)
	if _, there := s.empty.Load(repo); empty && there {
		return nil
	}
	err := s.putSmall(ctx, repo, d)
	if err != nil && ctx.Err() == nil {
		err = s.putBlob(ctx, repo, d, opener(d))
	}
	if err == nil && empty {
		s.empty.Store(repo, true)
	}
	return err
}

// putSmall stores a blob that is in memory by two requests: the library takes four,
// which is half of what publishing a large fleet takes. What does not go as expected
// is left to the library, which knows more ways and tries again.
func (s *server) putSmall(ctx context.Context, repo string, d oci.Descriptor) error {
	base := &url.URL{Scheme: "https", Host: s.ref.Host, Path: "/v2/" + s.ref.Repo(repo) + "/blobs/uploads/"}
	if s.plain {
		base.Scheme = "http"
	}
	resp, err := s.send(ctx, http.MethodPost, base, nil)
	if err != nil {
		return err
	}
	at, err := base.Parse(resp.Header.Get("Location"))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusAccepted:
		return fmt.Errorf("begin an upload: %s", resp.Status)
	case at.Scheme != base.Scheme || at.Host != base.Host:
		return fmt.Errorf("the upload goes to %.80q", at.Host)
	}
	query := at.Query()
	query.Set("digest", d.Digest)
	at.RawQuery = query.Encode()
	if resp, err = s.send(ctx, http.MethodPut, at, d.Data); err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("end an upload: %s", resp.Status)
	}
	return err
}

// send sends one request; of the answer, only its head is of interest.
func (s *server) send(ctx context.Context, method string, to *url.URL, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", s.agent)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := s.transport.RoundTrip(req) // no redirect is followed
	if err != nil {
		return nil, err
	}
	_, err = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return resp, errors.Join(err, resp.Body.Close())
}
