package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// write is a request of the controller that would change something.
type write struct {
	Verb, Name, Pool string
	Code             int
	Injected         bool
}

// wire stands between the controller and the server: it remembers writes and makes faults.
type wire struct {
	next   http.RoundTripper
	act    func(*Action) error
	mutex  sync.Mutex
	writes []write
	faults []*Fault
	last   time.Time
	made   []write
}

func (w *wire) begin(faults []Fault) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.writes, w.faults, w.last = nil, nil, time.Now()
	for index := range faults {
		w.faults = append(w.faults, &faults[index])
	}
}

func (w *wire) end() []write {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.faults = nil
	return w.writes
}

func (w *wire) lastSuccess() time.Time {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.last
}

var verbs = map[string]string{"POST": "create", "PUT": "update", "DELETE": "delete", "PATCH": "patch"}

var reasons = map[int]string{
	400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid",
	429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}

// RoundTrip sends one request, or does to it what the faults of the step say.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	verb := verbs[request.Method]
	if verb == "" || !strings.Contains(request.URL.Path, "/resourceslices") {
		return w.next.RoundTrip(request)
	}
	made := write{Verb: verb}
	if _, name, found := strings.Cut(request.URL.Path, "/resourceslices/"); found {
		made.Name = name
	}
	if request.Body != nil {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		made.Pool, _ = poolAndName(body)
	}
	fault := w.fault(verb)
	if fault != nil && fault.Kind == "status" {
		made.Code, made.Injected = fault.Status, true
		w.remember(made)
		return refusal(request, fault.Status), nil
	}
	if fault != nil && fault.Kind == "race" {
		if err := w.act(fault.Then); err != nil {
			return nil, err
		}
	}
	response, err := w.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	made.Code = response.StatusCode
	if verb == "create" && made.Code < 300 {
		_, made.Name = poolAndName(body)
	}
	w.remember(made)
	if fault != nil && fault.Kind == "lost-response" {
		return nil, errors.New("connection lost after the request was sent (injected)")
	}
	return response, nil
}

func (w *wire) fault(verb string) *Fault {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, each := range w.faults {
		if each.Verb != verb || each.Count == 0 {
			continue
		}
		if each.Skip > 0 {
			each.Skip--
			return nil
		}
		if each.Count > 0 {
			each.Count--
		}
		return each
	}
	return nil
}

func (w *wire) remember(made write) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.writes = append(w.writes, made)
	if made.Code < 300 {
		w.last = time.Now()
		if made.Verb == "create" {
			w.made = append(w.made, made)
		}
	}
}

func poolAndName(body []byte) (string, string) {
	var read struct {
		Metadata struct{ Name string }
		Spec     struct{ Pool struct{ Name string } }
	}
	_ = json.Unmarshal(body, &read)
	return read.Spec.Pool.Name, read.Metadata.Name
}

func refusal(request *http.Request, code int) *http.Response {
	status, _ := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": "injected", "reason": reasons[code], "code": code,
	})
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		ContentLength: int64(len(status)), Body: io.NopCloser(bytes.NewReader(status)),
	}
}
