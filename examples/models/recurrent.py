"""Recurrent classifiers."""

import torch
from torch import nn


class LstmClassifier(nn.Module):
    def __init__(self, vocabulary, width, hidden, layers, classes, bidirectional=False, dropout=0.0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=dropout)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), classes)

    def forward(self, tokens):
        states, _ = self.lstm(self.tokens(tokens))
        return self.head(states.mean(1))


class GruTagger(nn.Module):
    """A label for each token, by a GRU that starts from a learned state."""

    def __init__(self, vocabulary, width, hidden, classes):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.start = nn.Parameter(torch.zeros(1, 1, hidden))
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens):
        start = self.start.expand(-1, tokens.shape[0], -1).contiguous()
        states, last = self.gru(self.tokens(tokens), start)
        return self.head(states + last[0].unsqueeze(1))


class CellLoop(nn.Module):
    """A recurrence written as a Python loop over time."""

    def __init__(self, width, hidden, classes):
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        memory = torch.zeros_like(state)
        for step in range(x.shape[1]):
            state, memory = self.cell(x[:, step], (state, memory))
        return self.head(state)
