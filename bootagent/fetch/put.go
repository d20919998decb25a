// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/report"
	"github.com/caisson-os/caisson/oci"
)

// store is the repository of reports on a registry.
type store struct {
	client *http.Client
	base   *url.URL // of the repository
	agent  string
}

// openStores reads the credentials, each of which makes a store. The registry is reached as the
// fleet's own is; in plain text only where it is that.
func openStores(r request) (stores []*store, err error) {
	for _, file := range r.Way.Files(track.ReportAuth) {
		s, openErr := openStore(r, file)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		stores = append(stores, s)
	}
	if len(stores) > 0 {
		return stores, nil
	}
	return nil, err
}

func openStore(r request, auth string) (*store, error) {
	ref, err := oci.ParseRef(r.Post.Put.Registry)
	if err == nil && ref.IsLayout() {
		err = errors.New("reports are put into a registry, not into a directory")
	}
	if err == nil {
		err = oci.CheckName(oci.RepoReport, r.Post.Put.Node)
	}
	if err != nil {
		return nil, err
	}
	o := track.Options(r.Bootstrap, r.Way, auth)
	if own, err := oci.ParseRef(r.Bootstrap.Registry); err != nil || own.Host != ref.Host {
		o.PlainHTTP = false
	}
	t, err := o.Transport(ref.Host)
	if err != nil {
		return nil, err
	}
	base := &url.URL{Scheme: "https", Host: ref.Host, Path: "/v2/" + ref.Repo(oci.RepoReport)}
	if o.PlainHTTP {
		base.Scheme = "http"
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &store{&http.Client{Transport: t, CheckRedirect: stay}, base, r.Agent}, nil
}

// put makes a letter the one that its node's tag names.
func (s *store) put(ctx context.Context, l *report.Letter) error {
	manifest, blobs := oci.DocumentManifest(oci.TypeReport, l.Body)
	for _, b := range blobs {
		if err := s.blob(ctx, b); err != nil {
			return err
		}
	}
	_, err := s.do(ctx, http.MethodPut, s.base.JoinPath("manifests", l.Put.Node), oci.MediaTypeManifest, manifest, http.StatusCreated)
	return err
}

// blob uploads a blob unless it is there, as the empty one is after the first report.
func (s *store) blob(ctx context.Context, d oci.Descriptor) error {
	if _, err := s.do(ctx, http.MethodHead, s.base.JoinPath("blobs", d.Digest), "", nil, http.StatusOK); err == nil {
		return nil // any error but that it is missing meets the upload, too
	}
	resp, err := s.do(ctx, http.MethodPost, s.base.JoinPath("blobs", "uploads", "/"), "", nil, http.StatusAccepted)
	if err != nil {
		return err
	}
	to, err := resp.Location()
	if err != nil {
		return fmt.Errorf("the registry names no address for the upload of a report: %w", err)
	}
	if to.Scheme != s.base.Scheme || to.Host != s.base.Host {
		return fmt.Errorf("the registry sends a report to %.80q: it stays here", to.Host)
	}
	query := to.Query()
	query.Set("digest", d.Digest)
	to.RawQuery = query.Encode()
	_, err = s.do(ctx, http.MethodPut, to, "application/octet-stream", d.Data, http.StatusCreated)
	return err
}

// do makes one request, which has to be answered by a status.
func (s *store) do(ctx context.Context, method string, to *url.URL, mediaType string, body []byte, want int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", s.agent)
	if mediaType != "" {
		req.Header.Set("Content-Type", mediaType)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode != want {
		return nil, refused(resp.StatusCode, fmt.Errorf("the registry answers %d to %s of a report%s", resp.StatusCode, method, reason(resp.Body)))
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return resp, err
}
