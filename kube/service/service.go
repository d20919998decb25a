// SPDX-License-Identifier: Apache-2.0

// Package service asks the fleet's service, which nodes report to: how they are, and which
// wait to be drained. It is a client of the API that 'caisson fleet serve' describes at
// /openapi.json, and no answer of it commands a node. [Mirror] shows in a cluster what it says of nodes.
package service

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// Limits of what is read of the service, counted while it is read, and how long an answer may
// take.
const (
	MaxAnswer = 4 << 20  // bytes of an answer
	MaxRows   = 4096     // rows of a list in it
	MaxNodes  = 100_000  // nodes of a fleet,
	MaxBytes  = 64 << 20 // and bytes of the pages that list them,
	MaxPages  = MaxNodes/page + 1
	patience  = time.Minute
	page      = 1000 // nodes that are asked for at a time
)

// rows are those of a list.
type rows[T any] []T

// UnmarshalJSON reads no more rows than there may be.
func (r *rows[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if first, err := d.Token(); err != nil || first == nil {
		return err // null has none
	} else if first != json.Delim('[') {
		return errors.New("it is not a list")
	}
	for *r = nil; d.More(); {
		if len(*r) == MaxRows {
			return fmt.Errorf("a list has more than %d rows", MaxRows)
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		*r = append(*r, one)
	}
	return nil
}

// Client asks one service.
type Client struct {
	base      string
	tokenFile string // read at each request: a Secret that is replaced counts at once
	http      *http.Client
}

// New returns a client. The token is a file, "" where the service takes none; CAs are PEM,
// nil for those of the system.
func New(base, tokenFile string, cas []byte) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%q is not the address of a service: https://HOST[:PORT]", base)
	}
	if u.Scheme == "http" && tokenFile != "" && u.Hostname() != "127.0.0.1" && u.Hostname() != "localhost" {
		return nil, fmt.Errorf("%s: a token goes by TLS alone", base)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = patience
	if cas != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(cas) {
			return nil, errors.New("the certificate authorities of the service are not PEM")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Client{strings.TrimSuffix(base, "/"), tokenFile,
		&http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the service leads elsewhere") // with the token
		}}}, nil
}

// token returns the service's token, "" where it takes none.
func (c *Client) token() (string, error) {
	if c.tokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return "", fmt.Errorf("token of the fleet's service: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// MAC authenticates a text by the service's token, which no Node has; it is "" without one.
func (c *Client) MAC(text string) (string, error) {
	token, err := c.token()
	if token == "" || err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the fleet's service: %w", err)
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode/100 != 2 {
		err := fmt.Errorf("%s %s: the fleet's service answers %d %s", method, path, resp.StatusCode, http.StatusText(resp.StatusCode))
		if method == http.MethodPost { // for the log; what a GET came to may stand in a status
			said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what there is of it
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
		}
		return err
	}
	return read(resp.Body)
}

// get reads an answer, and returns how many bytes it has.
func (c *Client) get(ctx context.Context, path string, into any) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = c.do(ctx, http.MethodGet, path, nil, func(r io.Reader) error {
		l := &io.LimitedReader{R: r, N: MaxAnswer + 1}
		err := json.NewDecoder(l).Decode(into)
		if size = MaxAnswer + 1 - l.N; size > MaxAnswer {
			err = errors.New("it has too many bytes")
		}
		if err != nil {
			return fmt.Errorf("read %s of the fleet's service: %w", path, err)
		}
		return nil
	})
	return size, err
}

// Nodes returns all nodes of the fleet, by name.
func (c *Client) Nodes(ctx context.Context) ([]view.Line, error) {
	var out []view.Line
	for read, pages, all := int64(0), 1, 0; ; pages++ {
		var l struct {
			Nodes rows[view.Line] `json:"nodes"`
			All   int             `json:"all"`
		}
		size, err := c.get(ctx, "/v1/nodes?sort=name&most="+strconv.Itoa(page)+"&from="+strconv.Itoa(len(out)), &l)
		if err != nil {
			return nil, err
		}
		if pages > 1 && l.All != all { // one may be on no page
			return nil, errors.New("nodes came to the fleet, or left it, while its service listed them")
		}
		all = l.All
		read += size
		if out = append(out, l.Nodes...); len(out) > MaxNodes || read > MaxBytes {
			return nil, fmt.Errorf("the fleet's service lists more than %d nodes, or more than %d MiB of them", MaxNodes, MaxBytes>>20)
		}
		if len(out) >= l.All || len(l.Nodes) == 0 {
			return out, nil
		}
		if pages == MaxPages {
			return nil, fmt.Errorf("the fleet's service lists nodes on more than %d pages", MaxPages)
		}
	}
}

// Operations returns what a node says of its operations.
func (c *Client) Operations(ctx context.Context, node string) ([]spec.OperationStatus, error) {
	var n struct {
		Report struct {
			Operations rows[spec.OperationStatus] `json:"operations"`
		} `json:"report"`
	}
	_, err := c.get(ctx, "/v1/nodes/"+url.PathEscape(node), &n)
	return n.Report.Operations, err
}

// Reports returns what nodes reported last: those of the first waves of a rollout, where the
// service knows its plan, and else all. Each is verified by what nodes reported with before.
func (c *Client) Reports(ctx context.Context, asked report.Asked, by *report.Reporters) (all map[string]report.Standing, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	err = c.do(ctx, http.MethodGet, "/v1/reports?"+asked.Query(by), nil, func(r io.Reader) error {
		all, err = report.Hear(r, asked, by, time.Now())
		return err
	})
	return all, err
}

// Slot is one that a node holds.
type Slot struct {
	Group    string    `json:"group"`
	Node     string    `json:"node"`
	Since    time.Time `json:"since"`
	Draining bool      `json:"draining"` // the node waits until it is drained
}

// Slots returns the slots that are held.
func (c *Client) Slots(ctx context.Context) (out []Slot, err error) {
	var s struct {
		Groups rows[struct {
			Held rows[Slot] `json:"held"`
		}] `json:"groups"`
	}
	if _, err := c.get(ctx, "/v1/slots", &s); err != nil {
		return nil, err
	}
	for _, g := range s.Groups {
		if out = append(out, g.Held...); len(out) > MaxRows {
			return nil, fmt.Errorf("the fleet's service lists more than %d slots", MaxRows)
		}
	}
	return out, nil
}

// Drained says that a node which waits for it is drained, and what was done.
func (c *Client) Drained(ctx context.Context, s Slot, what string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.do(ctx, http.MethodPost, "/v1/slots/"+url.PathEscape(s.Group)+"/"+url.PathEscape(s.Node)+"/drained",
		[]byte(what), func(io.Reader) error { return nil })
}

// Follow looks at once, and again when something changed, after every so long, and not before it has
// rested, until ctx ends.
func Follow(ctx context.Context, changed <-chan struct{}, rest, every time.Duration, look func()) {
	for {
		look()
		rested := time.After(min(rest, every))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(every):
		}
		select {
		case <-ctx.Done():
			return
		case <-rested:
		}
	}
}

// Changes tells each time that something changed, and once when it has begun to listen,
// until ctx ends. It listens again after a cut.
func (c *Client) Changes(ctx context.Context, again time.Duration) <-chan struct{} {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // it will look anyway
		}
	}
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		tell()
		_ = c.do(ctx, http.MethodGet, "/v1/events", nil, func(r io.Reader) error { // who looks says what is wrong
			for lines := bufio.NewScanner(r); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data:") {
					tell()
				}
			}
			return nil
		})
	}, again)
	return changed
}
