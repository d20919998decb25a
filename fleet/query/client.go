// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Client asks a fleet's service, as its API has it.
type Client struct {
	At        string // URL; $CAISSON_FLEET, or else [UsualService], when empty
	TokenFile string // with a token, mode 0600; $CAISSON_FLEET_TOKEN_FILE when empty, and none without that
	CA        string // file of the PEM authorities that are trusted; the system's when empty

	known bool // it is the service of the fleet whose reports are asked for
}

// UsualService is where a service listens that was not told where.
const UsualService = "http://127.0.0.1:8090"

// Kinds of problems with what was asked for.
const (
	WrongQuery = "query"
	NoNode     = "no-node"
	NoTokens   = "no-tokens"
)

// Named reports whether anybody said where the service is.
func (c *Client) Named() bool { return c.At != "" || os.Getenv("CAISSON_FLEET") != "" }

// maxAnswer bounds what the service may answer.
const maxAnswer = 64 << 20

// Do asks and returns the answer, of at most 64 MiB.
func (c *Client) Do(ctx context.Context, method, path, body string) (data []byte, err error) {
	err = c.stream(ctx, method, path, body, func(r io.Reader) error {
		if data, err = io.ReadAll(io.LimitReader(r, maxAnswer+1)); err == nil && len(data) > maxAnswer {
			err = fmt.Errorf("it answers more than %d bytes", maxAnswer)
		}
		return err
	})
	return data, err
}

// stream has an answer read as it comes, within a minute. What the service says of a question that is
// wrong is an error of usage.
func (c *Client) stream(ctx context.Context, method, path, body string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	base := strings.TrimRight(cmp.Or(c.At, os.Getenv("CAISSON_FLEET"), UsualService), "/")
	req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	const as = "as in --at https://fleet.example.org:8443"
	if err != nil {
		return cli.Usage(as, "%w", err)
	}
	if req.URL.Scheme != "https" && req.URL.Scheme != "http" || req.URL.Host == "" {
		return cli.Usage(as, "%q is not the URL of a service", base)
	}
	if name := cmp.Or(c.TokenFile, os.Getenv("CAISSON_FLEET_TOKEN_FILE")); name != "" {
		if at := (oci.Ref{Host: req.URL.Host}); req.URL.Scheme != "https" && !at.Loopback() {
			return cli.Usage("give --at https://"+req.URL.Host+", or a tunnel to this machine",
				"a token is not sent to %s without TLS", req.URL.Host)
		}
		token, err := ownfiles.ReadLinked(name)
		if err != nil {
			return cli.WithHint(fmt.Errorf("token: %w", err),
				"--token-file or $CAISSON_FLEET_TOKEN_FILE names a file with a token; 'caisson fleet token' makes one")
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return fmt.Errorf("certificate authority: %w", err)
		}
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s holds no PEM certificate", c.CA)
		}
	}
	h := http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := h.Do(req)
	if err != nil {
		hint := "'caisson fleet serve' starts one here; name another one with --at"
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			hint = "--service-ca names the authority of its certificate"
		}
		return cli.WithHint(fmt.Errorf("ask the fleet's service: %w", err), hint)
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode/100 == 2 {
		return fault.In(read(resp.Body), "ask the fleet's service")
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("ask the fleet's service: %w", err)
	}
	var said struct{ Kind, Value, Hint string }
	if json.Unmarshal(data, &said) != nil || said.Value == "" {
		said.Value = cmp.Or(strings.TrimSpace(string(data[:min(len(data), 200)])), "no details") // a proxy's, or of TLS itself
	}
	if method == http.MethodGet && (said.Kind == WrongQuery || said.Kind == NoNode) { // about what was asked for
		return cli.Usage(said.Hint, "%s", said.Value)
	}
	err = fmt.Errorf("the fleet's service answers %d: %s", resp.StatusCode, plain.Line(said.Value))
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		if said.Kind == NoTokens {
			return cli.WithHint(err, "'caisson fleet token' makes one; start the service with --tokens and that file")
		}
		return cli.WithHint(err, "--token-file names a token; 'caisson fleet token' makes one")
	}
	return err
}

// Get reads the document at a path.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	_, err := c.get(ctx, path, into)
	return err
}

func (c *Client) get(ctx context.Context, path string, into any) (size int, err error) {
	data, err := c.Do(ctx, http.MethodGet, path, "")
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return 0, fmt.Errorf("the answer of the fleet's service cannot be read: %w", err)
	}
	return len(data), nil
}

// Post sends what is to be done.
func (c *Client) Post(ctx context.Context, path, body string) error {
	_, err := c.Do(ctx, http.MethodPost, path, body)
	return err
}

// Summary returns the fleet at a glance.
func (c *Client) Summary(ctx context.Context) (s Summary, err error) {
	return s, c.Get(ctx, "/v1/summary", &s)
}

// Node returns all that is known of a node.
func (c *Client) Node(ctx context.Context, name string) (n Node, err error) {
	return n, c.Get(ctx, "/v1/nodes/"+url.PathEscape(name), &n)
}

// maxNodes is more than a fleet has, and each has nodeSize bytes at most, in the mean of what is more
// than one answer: a service that lists without end is not one.
const maxNodes, nodeSize = 1 << 20, 1 << 10

// Nodes returns all nodes that meet a query. They are asked for by name: that order stays
// as it is while conditions change.
func (c *Client) Nodes(ctx context.Context, q url.Values) (list List, err error) {
	order := view.Order(q.Get("sort"))
	if err := order.Check(); err != nil {
		return list, cli.Usage("", "%w", err)
	}
	q = maps.Clone(q)
	q.Set("sort", "name")
	for bytes := 0; ; {
		q.Set("from", strconv.Itoa(len(list.Nodes)))
		var l List
		size, err := c.get(ctx, "/v1/nodes?"+q.Encode(), &l)
		if err != nil {
			return list, err
		}
		list.Nodes, list.All, list.Note = append(list.Nodes, l.Nodes...), l.All, l.Note
		if bytes += size; len(list.Nodes) > maxNodes || bytes > maxAnswer+nodeSize*len(list.Nodes) {
			return list, fmt.Errorf("the fleet's service lists more than %d nodes, or more than %d bytes of each", maxNodes, nodeSize)
		}
		if len(l.Nodes) == 0 || len(list.Nodes) >= l.All {
			order.Sort(list.Nodes)
			return list, nil
		}
	}
}

// Hear tells each node with what it has reported of the keys that it knows, none where nobody said
// where the service is.
func (c *Client) Hear(ctx context.Context, tell func(node string, known *spec.KeysKnown, reported bool)) error {
	if !c.Named() {
		return nil
	}
	list, err := c.Nodes(ctx, url.Values{})
	for _, l := range list.Nodes {
		tell(l.Name, l.Keys, !l.Received.IsZero())
	}
	return err
}

// KeysKnown returns what [Client.Hear] tells of the nodes that have reported.
func (c *Client) KeysKnown(ctx context.Context) (map[string]*spec.KeysKnown, error) {
	all := map[string]*spec.KeysKnown{}
	return all, c.Hear(ctx, func(node string, known *spec.KeysKnown, reported bool) {
		if reported {
			all[node] = known
		}
	})
}

// Commits returns what a node reports of its services.
func (c *Client) Commits(ctx context.Context, node string) (map[string]string, error) {
	n, err := c.Node(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("what %s reports: %w", node, err)
	}
	if n.Detail == nil || n.Report == nil {
		return nil, nil
	}
	return n.Report.Services, nil
}

// Reports returns what nodes reported last: those of the waves that are asked for, where
// the service knows the plan, and else all; where by is nil as the service says. Another fleet's service is an error.
func (c *Client) Reports(ctx context.Context, asked report.Asked, by *report.Reporters,
	now time.Time) (all map[string]report.Standing, err error) {
	if !c.known {
		s, err := c.Summary(ctx)
		if err != nil {
			return nil, err
		}
		if s.Name != "" && s.Name != asked.Fleet {
			return nil, cli.WithHint(fmt.Errorf("the service serves fleet %s, the rollout is for fleet %s", s.Name,
				asked.Fleet), "name another service with --at")
		}
		c.known = s.Name != ""
	}
	err = c.stream(ctx, http.MethodGet, "/v1/reports?"+asked.Query(by), "", func(r io.Reader) error {
		all, err = report.Hear(r, asked, by, now)
		return err
	})
	return all, err
}
