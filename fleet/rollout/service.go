// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// Received is one line of what a fleet service answers at /api/v1/reports: the last
// report of a node.
type Received struct {
	At     time.Time   `json:"at"`
	Counts bool        `json:"counts"` // the key that signed it is the node's, as far as the service knows
	Report spec.Report `json:"report"`
}

// Service asks a fleet service.
type Service struct {
	URL    string // without /api/v1
	Token  string // a reader's
	Client *http.Client
}

const (
	maxLine  = 64 << 10 // of a report as JSON
	maxNodes = 200_000
)

// Reports returns the last report of each node that counts.
func (s *Service) Reports(ctx context.Context) (map[string]Report, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.URL, "/")+"/api/v1/reports", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/x-ndjson")
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	all := map[string]Report{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r Received
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", req.URL, err)
		}
		if !r.Counts {
			continue
		}
		if all[r.Report.Node] = FromReport(&r.Report, r.At); len(all) > maxNodes {
			return nil, fmt.Errorf("%s: more than %d nodes", req.URL, maxNodes)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", req.URL, err)
	}
	return all, nil
}
