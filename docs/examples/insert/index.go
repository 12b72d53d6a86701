package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/arroyo-go/arroyo"
)

// index is a search index, reached by HTTP.
type index struct {
	url    string
	client *http.Client
}

// action is the line before a document.
type action struct {
	Index struct {
		ID          string `json:"_id"`
		Version     int64  `json:"version"`
		VersionType string `json:"version_type"`
	} `json:"index"`
}

// answer says what became of a document.
type answer struct {
	Status int `json:"status"`
	Error  struct {
		Reason string `json:"reason"`
	} `json:"error"`
}

// passes reports whether it may be otherwise the next time.
func (a answer) passes() bool { return a.Status == http.StatusTooManyRequests || a.Status >= 500 }

// bulk sends the rows in one request. It returns as many answers.
func (x *index) bulk(ctx context.Context, rows []arroyo.Message[Product]) ([]answer, error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body) // ends each value with a newline
	for _, row := range rows {
		var a action
		a.Index.ID, a.Index.Version, a.Index.VersionType = row.Payload.ID, row.Record().Offset, "external_gte"
		if err := lines.Encode(a); err != nil {
			return nil, err
		}
		if err := lines.Encode(row.Payload); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+"/_bulk", &body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	response, err := x.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the index answers %s", response.Status)
	}
	var result struct {
		Items []struct {
			Index answer `json:"index"`
		} `json:"items"`
	}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		return nil, fmt.Errorf("the index's answer: %w", err)
	}
	if len(result.Items) != len(rows) {
		return nil, fmt.Errorf("the index answers for %d of %d documents", len(result.Items), len(rows))
	}
	answers := make([]answer, len(rows))
	for i, item := range result.Items {
		answers[i] = item.Index
	}
	return answers, nil
}
